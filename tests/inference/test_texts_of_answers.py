"""Texts in answers and messages: formulas in CSV, unsafe state dicts, weights without finite answers."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
from support.runs import partrain, write_job

from partrain import checkpoint

CLASSES = ("=1+1", "-x", "@sum", "-5", "plain")
TABLE = """name = "formulas"
[model]
name = "linear"
[dataset]
kind = "csv"
path = "rows.csv"
target = "kind"
target_kind = "class"
[optimizer]
name = "sgd"
lr = 0.5
batch_size = 5
[sync]
rule = "average"
passes = 1
[[workers]]
count = 1
[stop]
rounds = 30
"""


def test_a_class_that_is_a_formula_is_harmless_in_csv(tmp_path: Path) -> None:
    rows = "".join(
        f"{int(n % 5 == k)}," if k < 4 else f"{int(n % 5 == k)},{CLASSES[n % 5]}\n" for n in range(50) for k in range(5)
    )
    (tmp_path / "rows.csv").write_text("a,b,c,d,e,kind\n" + rows)
    assert partrain("run", write_job(tmp_path, text=TABLE), "--out", tmp_path / "run", "-q").code == 0
    answers = partrain("predict", tmp_path / "run", "--input", tmp_path / "rows.csv", "--probabilities")
    assert answers.code == 0, answers
    head, *lines = answers.out.strip().splitlines()
    column = head.split(",").index("class")
    shown = {line.split(",")[column] for line in lines}
    assert shown <= {"'=1+1", "'-x", "'@sum", "-5", "plain"}
    assert {"'=1+1", "'@sum"} <= shown
    kept = json.loads(partrain("predict", tmp_path / "run", "--input", tmp_path / "rows.csv", "--json").out)
    assert set(kept["class"]) <= set(CLASSES)
    assert "=1+1" in kept["class"]


def test_an_unsafe_state_dict_is_refused_without_unsafe_advice(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return print, ("executed",)

    import torch

    torch.save({"w": Evil()}, tmp_path / "evil.pt", pickle_module=pickle)
    said = partrain("run", write_job(tmp_path, "model.from='evil.pt'"), "-q", "--out", tmp_path / "run")
    assert said.code == 66, said
    assert "holds more than tensors" in said.err
    assert "weights_only" not in said.err + said.out
    assert "executed" not in said.err + said.out


def test_weights_near_the_largest_number(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert partrain("run", write_job(tmp_path, "stop.rounds=1"), "--out", run, "-q").code == 0
    content = checkpoint.read(run / "checkpoint.h5")
    arrays = {name: np.full_like(one, 3e38) if name.startswith("model/") else one for name, one in content.arrays.items()}
    (tmp_path / "large.h5").write_bytes(checkpoint.encode(replace(content, arrays=arrays)))
    for format in ("safetensors", "onnx"):
        said = partrain("export", tmp_path / "large.h5", "-f", format, "-o", tmp_path / "net.bin")
        assert (said.code, said.errors) == (65, ["bad-checkpoint"]), said
        assert "the network answers with NaN or infinities" in said.err
