"""A command checks each field of a manifest before it computes with it, also where the digests are right."""

from __future__ import annotations

import copy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.runs import partrain, write_job
from support.shared_runs import once

from partrain import checkpoint
from partrain.checkpoint.codecs import CodecField, NetworkRecord, check_codec
from partrain.checkpoint.manifest import manifest_of
from partrain.errors import BadCheckpoint

COMMANDS: dict[str, tuple[str, ...]] = {
    "inspect": ("inspect", "CKPT"),
    "verify": ("verify", "CKPT"),
    "evaluate": ("evaluate", "CKPT"),
    "predict": ("predict", "CKPT", "--input", "TABLE"),
    "export": ("export", "CKPT", "--format", "safetensors", "--output", "OUT/network.safetensors"),
    "diff": ("diff", "GOOD", "CKPT"),
    "soup": ("soup", "CKPT", "GOOD", "--output", "OUT/soup.h5"),
    "resume": ("resume", "CKPT", "--out", "OUT/on", "--until", "rounds=3"),
}
ODD: dict[str, Any] = {
    "name": "../x",
    "versions": {"torch": 3},
    "data": "none",
    "folder": "not/absolute",
    "horizon": -(2**63),
    "average_from": -1,
    "start_file": "x",
    "run": "another run",
    "round": 1.5,
    "progress.round": 7,
    "progress.misses": -3,
    "progress.item_iterations": 2**62,
    "progress.accuracy": 1.5,
    "progress.loss": 1e308,
    "progress.best": -1e300,
    "progress.best_round": 9,
    "network.input": [-13],
    "network.outputs": 0,
    "network.task": "guess",
    "network.vocabulary": 0,
    "workers": [],
    "workers.0.rank": 1,
    "workers.0.device": "\x1b[2J",
    "workers.0.threads": -1,
    "workers.1.partition": "all",
    "workers.1.threads": 2**63,
    "codec.form": "tables",
    "codec.inputs": [0],
    "codec.one_hot": {"word": [["a"], "b"]},
    "codec.features": ["size"],
    "codec.targets": 3,
    "codec.classes": ["large"],
    "codec.missing": {"other": "mean"},
    "codec.fill": [0.5],
    "codec.mean": [1e308, 0.0, 0.0],
    "codec.std": [1.0, 0.0, 1.0],
    "codec.surprise": 1,
    "codec.cardinalities": [-1, 0, 0],
}
"""An odd value of each field."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a run on a table, and the table."""

    def make(folder: Path) -> None:
        rows = "\n".join(f"{row % 10},{'ab'[row % 2]},{'large' if row % 10 > 4 else 'small'}" for row in range(60))
        (folder / "table.csv").write_text(f"size,word,kind\n{rows}\n")
        table = 'dataset={kind="csv", path="table.csv", target="kind", one_hot=["word"], validation=10, test_items=10}'
        job = write_job(folder, table, "model.hidden=[4]", "stop.rounds=2")
        assert partrain("run", job, "--out", folder / "run", "-q").code == 0

    return once(tmp_path_factory, "odd manifests", make)


def altered(manifest: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    """Return a copy of a manifest with another value under a dotted name."""
    found = copy.deepcopy(manifest)
    *above, last = name.split(".")
    table: Any = found
    for key in above:
        table = table[int(key)] if isinstance(table, list) else table[key]
    table[last] = value
    return found


@pytest.mark.parametrize("command", COMMANDS)
def test_an_odd_field_is_65_with_its_name(folder: Path, tmp_path: Path, command: str) -> None:
    good = folder / "run/checkpoint.h5"
    whole, bad = checkpoint.read(good), tmp_path / "odd.h5"
    places = {"CKPT": bad, "GOOD": good, "TABLE": folder / "table.csv"}
    words = [places.get(word, word.replace("OUT", str(tmp_path))) for word in COMMANDS[command]]
    trusted = ["--trust-code"] if command in ("evaluate", "resume", "soup") else []  # they open the table that the job names
    for name, value in ODD.items():
        content = replace(whole, manifest=altered(whole.manifest, name, value))
        try:
            bad.write_bytes(checkpoint.encode(content))
        except ValueError:  # the header has this field, too, and refuses it
            assert name in ("run", "round")
            continue
        said = partrain(*words, *trusted)
        assert (said.code, said.errors) == (65, ["bad-checkpoint"]), (name, said)
        shown = {"progress.round": "contradicts itself: round", "workers.0.rank": "`workers`"}.get(name, f"`{name}")
        assert shown in said.err, (name, said)
        assert f"{bad}: " in said.err
        assert said.err.count("\n") == 1
        assert "\x1b" not in said.err
    bad.write_bytes(checkpoint.encode(whole))
    assert partrain(*words, *trusted).code == 0, "the file as it is"


def test_commands_that_only_read_do_not_import_h5py(folder: Path, tmp_path: Path) -> None:
    run = str(folder / "run/checkpoint.h5")
    places = {"CKPT": run, "GOOD": run, "TABLE": str(folder / "table.csv"), "OUT/network.safetensors": str(tmp_path / "network")}
    commands = ["inspect", "verify", "diff", "predict", "evaluate", "export"]
    lines = [[places.get(word, word) for word in COMMANDS[name]] + ["--trust-code"] * (name == "evaluate") for name in commands]
    code = f"""
import sys
from partrain.cli.main import main
for line in {lines}:
    sys.argv = ["partrain", *line]
    try:
        main()
    except SystemExit as ending:
        assert not ending.code, line
    assert "h5py" not in sys.modules, line
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_reasons_in_plain_words(folder: Path) -> None:
    whole = checkpoint.read(folder / "run/checkpoint.h5")
    reasons = {
        "name": ("../x", "string should match pattern '^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$'"),
        "codec.inputs": (["size", "size"], "names the column `size` twice"),
        "codec.classes": (["large", "large"], "'large' is there twice"),
        "codec": ({}, "'None' for a data set of the kind csv"),
        "progress.item_iterations": (0, "0, but the workers have trained 96"),
    }
    for name, (value, reason) in reasons.items():
        with pytest.raises(BadCheckpoint) as refused:
            manifest_of(replace(whole, manifest=altered(whole.manifest, name, value)))
        assert refused.value.message.endswith(f": {reason}"), refused.value.message
        assert f"`{name}" in refused.value.message
    with pytest.raises(BadCheckpoint, match="one of its texts is no Unicode"):
        manifest_of(replace(whole, manifest=altered(whole.manifest, "codec.inputs", ["\ud800"])))


def test_the_history_has_the_item_iterations(folder: Path) -> None:
    whole = checkpoint.read(folder / "run/checkpoint.h5")
    items = whole.arrays["history/item_iterations"].copy()
    items[-1] += 1
    with pytest.raises(BadCheckpoint, match=r"`progress.item_iterations`: 96, but /history has 97"):
        manifest_of(replace(whole, arrays=whole.arrays | {"history/item_iterations": items}))


def test_another_codec_is_told_in_one_short_line(folder: Path, tmp_path: Path) -> None:
    whole = checkpoint.read(folder / "run/checkpoint.h5")
    other = altered(whole.manifest, "codec.mean", [3.25, 0.0, 0.0])
    (tmp_path / "other.h5").write_bytes(checkpoint.encode(replace(whole, manifest=other)))
    said = partrain("resume", tmp_path / "other.h5", "--out", tmp_path / "on", "--until", "rounds=3", "--trust-code")
    assert (said.code, said.errors) == (65, ["bad-checkpoint"]), said
    assert "its `codec.mean` is [3.25, 0.0, 0.0] and not [4.325, 0.0, 0.0], as the job has it" in said.err


def test_a_field_that_is_not_there(folder: Path) -> None:
    whole = checkpoint.read(folder / "run/checkpoint.h5")
    for name in whole.manifest["codec"]:
        codec = {key: value for key, value in whole.manifest["codec"].items() if key != name}
        with pytest.raises(BadCheckpoint, match=r"`codec\."):
            manifest_of(replace(whole, manifest=whole.manifest | {"codec": codec}))


SERIES = {
    "form": "series",
    "columns": ["a", "b"],
    "target": ["b"],
    "window": 8,
    "steps": 2,
    "mean": {"a": 0.0, "b": 1.0},
    "deviation": {"a": 1.0, "b": 2.0},
    "difference": [1],
    "season": 12,
    "time": "month",
    "missing": "error",
    "step": ["months", 1.0],
}
TEXT = {"form": "text", "tokens": "characters", "vocabulary": ["a", "b", "c"]}
IMAGES = {"form": "images", "classes": ["cat", "dog"], "size": [8, 9], "channels": 3}
ARRAYS = {"classes": [3, 5], "renumbered": True, "mean": [0.0, 0.5], "std": [1.0, 2.0], "axis": -1}
TARGETS = {"targets": ["price"], "target_mean": [3.0], "target_std": [0.5]}
FORMS: dict[str, tuple[dict[str, Any], NetworkRecord]] = {
    "series": (SERIES, NetworkRecord(input=[8, 2], outputs=2, task="forecast", vocabulary=None, of_bytes=False)),
    "text": (TEXT, NetworkRecord(input=[16], outputs=3, task="language", vocabulary=3, of_bytes=False)),
    "images": (IMAGES, NetworkRecord(input=[3, 8, 9], outputs=2, task="classification", vocabulary=None, of_bytes=False)),
    "arrays": (ARRAYS, NetworkRecord(input=[2], outputs=2, task="classification", vocabulary=None, of_bytes=False)),
    "targets": (TARGETS, NetworkRecord(input=[4], outputs=1, task="regression", vocabulary=None, of_bytes=False)),
    "none": ({}, NetworkRecord(input=[], outputs=1, task="regression", vocabulary=None, of_bytes=False)),
}


def wrong_values(name: str, value: Any) -> list[Any]:
    """Another type, a shorter list or table, and a negative number, as far as a field can have them."""
    found: list[Any] = [[[value]]]
    if isinstance(value, (list, dict)) and name != "difference":
        found.append(value[:-1] if isinstance(value, list) else dict(list(value.items())[:-1]))
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        found.append(-abs(value) - 1)
    return found


@pytest.mark.parametrize("form", FORMS)
def test_codecs(form: str) -> None:
    """Each codec is accepted as it is, and with none of its fields altered."""
    codec, network = FORMS[form]
    check_codec(codec, network)
    for name, value in codec.items():
        for wrong in wrong_values(name, value):
            with pytest.raises((CodecField, ValueError)):
                check_codec(codec | {name: wrong}, network)
    with pytest.raises(ValueError, match="surprise"):
        check_codec(codec | {"surprise": 1}, network)


def test_an_added_tensor(folder: Path, tmp_path: Path) -> None:
    """`resume` refuses what `evaluate` refuses."""
    whole = checkpoint.read(folder / "run/checkpoint.h5")
    more = whole.arrays | {"model/x": next(iter(whole.arrays.values()))}
    (tmp_path / "more.h5").write_bytes(checkpoint.encode(replace(whole, arrays=more)))
    for words in ("evaluate",), ("resume", "--out", tmp_path / "on", "--until", "rounds=3"):
        said = partrain(words[0], tmp_path / "more.h5", *words[1:], "--trust-code")
        assert (said.code, said.errors) == (65, ["bad-checkpoint"]), said
