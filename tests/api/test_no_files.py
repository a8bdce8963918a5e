"""Items in memory stay there: `predict` and `evaluate` open no file and make no folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys

import numpy as np
import pandas as pd
from torch import nn

import partrain


class Sum(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(3, 2), nn.Linear(2, 2)

    def forward(self, a, b):
        return self.one(a) + self.other(b)


if __name__ == "__main__":
    draw = np.random.default_rng(0)
    array, second = draw.normal(size=(40, 3)), draw.normal(size=(40, 2))
    labels = np.where(array[:, 0] > 0, "large", "small")
    frame = pd.DataFrame(array, columns=list("abc")).assign(word=labels)
    linear = {"name": "linear"}
    cases = {
        "array": (linear, (array, labels), (array, labels)),
        "dict": (Sum, ({"a": array, "b": second}, labels), ({"a": array, "b": second}, labels)),
        "DataFrame": (linear, {"data": frame, "target": "word"}, (frame,)),
    }
    events, watching = [], False
    sys.addaudithook(lambda event, arguments: watching and events.append((event, arguments)))
    for name, (model, dataset, items) in cases.items():
        trained = partrain.train(
            model=model, dataset=dataset, stop={"rounds": 1}, transport={"kind": "simulated"}, out=f"{sys.argv[1]}/{name}"
        )
        trained.predict(items[0]), trained.evaluate(*items)  # imports
        watching = True
        trained.predict(items[0]), trained.evaluate(*items)
        watching = False
        seen = [event for event in events if event[0].startswith(("open", "tempfile", "os.mkdir"))]
        assert events and not seen, (name, seen)
"""


@pytest.mark.slow
def test_items_in_memory_are_answered_without_a_file(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, "script.py", tmp_path], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
