"""`python docs/generate references` writes docs/reference/, `pictures` the drawn ones in docs/pictures/, `figures` the numbers
in prose, `real-runs` the pictures of README."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))


def main() -> None:
    """Write the files of the kinds that are named."""
    for word in sys.argv[1:] or ("references", "pictures"):
        if word == "real-runs":
            from generate.real_runs import main as draw_real_runs

            draw_real_runs()
            continue
        if word == "references":
            from generate.references import FILES
        elif word == "figures":
            from generate.figures import FILES
        else:
            from generate.pictures import FILES
        for path, text in FILES.items():
            path.write_text(text(), encoding="utf-8")
            print(path)


main()
