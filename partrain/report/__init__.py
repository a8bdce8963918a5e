"""The report of runs, one HTML file, and single figures.

    sources    paths -> runs and sweeps                  figures    runs -> Vega-Lite descriptions of figures
    history    a run folder -> its numbers               sweep      the figures of a sweep
    verdict    runs -> one sentence                      items      worst-judged items, predicted against true
    facts      runs -> tables of numbers                 page       all of it -> HTML

Everything is read from run folders; nothing is written there. `vega.js.gz` draws the figures in a browser: see `VEGA.md`.
"""
