"""The recipe from raw values to items. One object loads a data set, converts inputs to predict, and is the schema in checkpoints.

Its steps are written once, with the functions that numpy and torch share: `xp` is numpy when items are loaded or predicted, and
torch when an exporter traces the same steps into a graph. This package knows neither files nor jobs.
"""
