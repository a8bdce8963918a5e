"""The recipe from raw values to items. One object loads a data set, converts what is predicted, and is the schema in checkpoints.

Its steps are written once, with the functions that numpy and torch share: `xp` is numpy where items are loaded or predicted, and torch
where an exporter traces the same steps into a graph. This package knows neither files nor jobs.
"""
