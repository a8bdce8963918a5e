"""The report of runs, one HTML file, and single figures.

    sources    paths -> runs and sweeps                  figures    runs -> descriptions of figures, SVG, PNG
    history    a run folder -> its numbers               sweep      a sweep -> descriptions of figures
    timeline   a row of time per worker                  theme      size, style and colors of figures
    verdict    runs -> one sentence                      items      a network -> its answers to held-out items
    facts      runs -> tables of text                    page       all of it -> HTML
    answer_figures   answers -> descriptions of figures

Everything is read from run folders; nothing is written there. Figures are described in the Vega-Lite language: `vega.js.gz` draws
them in a browser (`VEGA.md`), vl-convert draws them for `partrain plot`.
"""
