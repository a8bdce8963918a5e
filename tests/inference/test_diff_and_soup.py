"""`partrain inspect --tensors`, `diff` and `soup`: descriptions, distances and averages of tensors."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.runs import partrain, round_file

from partrain import checkpoint
from partrain.checkpoint import Content
from partrain.inference import diff, soup, tree

Runs = Callable[[str], Path]


def content(**tensors: object) -> Content:
    arrays = {f"model/{name.replace('__', '.')}": np.asarray(value) for name, value in tensors.items()}
    return Content(arrays, "", {"run": "x", "round": 1})


# Trees


def test_a_tree(run_of: Runs) -> None:
    told = json.loads(partrain("inspect", run_of("clouds"), "--tensors", "--json").out)
    weight = checkpoint.read(run_of("clouds") / "checkpoint.h5").arrays["model/0.weight"]
    leaf = told["model"]["0"]["weight"]
    assert (leaf["dtype"], leaf["shape"], leaf["nonfinite"]) == ("float32", [16, 2], 0)
    assert leaf["l2"] == pytest.approx(float(np.linalg.norm(weight)))
    assert leaf["max"] == pytest.approx(float(abs(weight).max()))
    assert "history" not in told
    lines = partrain("inspect", run_of("clouds"), "--tensors").out.splitlines()
    assert any(line.split()[:3] == ["weight", "float32", "16x2"] for line in lines)
    assert partrain("inspect", run_of("own"), "--tensors").code == 0, "no code is needed, so none must be trusted"


def test_what_is_not_finite_is_counted() -> None:
    told = tree.tree(content(a__b=np.array([3.0, np.nan, -4, np.inf])))
    assert told["model"]["a"]["b"] == {"dtype": "float64", "shape": [4], "l2": 5.0, "max": 4.0, "nonfinite": 2}
    assert tree.render(told)[-1].endswith("2 not finite")


def test_layers_are_in_their_order() -> None:
    told = tree.tree(content(**{f"{layer}__w": [1.0] for layer in (10, 2, 1)}))
    assert list(told["model"]) == ["1", "2", "10"]


# Distances


def test_distances_by_hand() -> None:
    told = diff.networks(content(a=[3.0, 4.0], b=[1.0]), content(a=[3.0, 4.5], b=[1.0]))
    assert not told["equal"]
    a, b = told["tensors"]["a"], told["tensors"]["b"]
    assert (a["equal"], a["l2"], a["relative"], a["max"]) == (False, 0.5, 0.1, 0.5)
    assert (b["equal"], b["l2"]) == (True, 0)
    assert told["all"]["relative"] == pytest.approx(0.5 / 26**0.5)


def test_equal_is_to_the_bit() -> None:
    assert diff.networks(content(a=[np.nan]), content(a=[np.nan]))["equal"]
    assert not diff.networks(content(a=[0.0]), content(a=[-0.0]))["equal"]


def test_structures_that_differ() -> None:
    told = diff.networks(content(a=[1.0], b=[1.0]), content(a=[[1.0]], c=[1.0]))
    assert (told["equal"], told["only_a"], told["only_b"]) == (False, ["b"], ["c"])
    assert told["tensors"]["a"] == {"equal": False, "differs": "float64 1 and float64 1x1"}
    assert "only in B: c" in diff.render_networks(told)


def test_diff(run_of: Runs) -> None:
    run = run_of("clouds")
    same = partrain("diff", run, round_file(run, 4))
    assert (same.code, same.out.splitlines()[-1]) == (0, "equal to the bit")
    other = partrain("diff", run, round_file(run, 2), "--json")
    assert other.code == 1
    told = json.loads(other.out)
    assert told["tensors"]["0.weight"]["l2"] > 0
    assert partrain("diff", run).code == partrain("diff", run, run, "--workers").code == 2
    assert partrain("diff", run, run / "nowhere.h5").code == 66


def test_workers(run_of: Runs) -> None:
    """Two replicas are equally far from their mean: half their distance."""
    said = partrain("diff", run_of("apart"), "--workers", "--json")
    assert said.code == 1
    told = json.loads(said.out)
    assert (told["workers"], list(told["tensors"])) == ([0, 1], ["0.weight", "0.bias", "2.weight", "2.bias"])
    arrays = checkpoint.read(run_of("apart") / "checkpoint.h5").arrays
    off = np.linalg.norm(arrays["workers/0/params"].astype(float) - arrays["workers/1/params"].astype(float))
    each = [sum(one["l2"][rank] ** 2 for one in told["tensors"].values()) ** 0.5 for rank in (0, 1)]
    assert each == pytest.approx([off / 2, off / 2])
    assert "worker 1" in partrain("diff", run_of("apart"), "--workers").out
    mixed = partrain("diff", run_of("clouds"), "--workers")
    assert (mixed.code, mixed.out) == (
        0,
        "no replicas to compare: the sync rule makes all workers equal at the end of a round\n",
    )


# Averages


def test_a_soup_of_one_is_itself(run_of: Runs, tmp_path: Path) -> None:
    run = run_of("clouds")
    assert partrain("soup", run, "-o", tmp_path / "soup.h5").code == 0
    said = partrain("diff", run, tmp_path / "soup.h5")
    assert (said.code, said.out.splitlines()[-1]) == (0, "equal to the bit")


def test_a_soup_by_hand() -> None:
    """Means 0 and 4, variances 1 and 3, of as many items each: together mean 2, variance 2 + 4."""
    one = content(w=[1.0, 2.0], n__running_mean=[0.0], n__running_var=[1.0], n__num_batches_tracked=5)
    other = content(w=[2.0, 4.0], n__running_mean=[4.0], n__running_var=[3.0], n__num_batches_tracked=7)
    mixed = soup.average([one, other])
    assert {name: tensor.tolist() for name, tensor in mixed.items()} == {
        "w": [1.5, 3.0],
        "n.running_mean": [2.0],
        "n.running_var": [6.0],
        "n.num_batches_tracked": 7,
    }


def test_a_soup_is_a_checkpoint(run_of: Runs, tmp_path: Path) -> None:
    run, output = run_of("clouds"), tmp_path / "soup.h5"
    members = [round_file(run, number) for number in (2, 3, 4)]
    said = partrain("soup", *members, "-o", output, "--json")
    assert said.code == 0, said
    rows = json.loads(said.out)["networks"]
    assert [row["network"] for row in rows] == [*map(str, members), "soup"]
    alone = [json.loads(partrain("evaluate", path, "--json").out)["validation"]["loss"] for path in (*members, output)]
    assert [row["loss"] for row in rows] == alone
    assert partrain("verify", output).code == partrain("inspect", output).code == 0
    resumed = partrain("resume", output)
    assert (resumed.code, resumed.errors) == (65, ["bad-checkpoint"])
    assert "soup" in resumed.err


def test_members_that_held_out_different_items(run_of: Runs, tmp_path: Path) -> None:
    """One member may have trained on the other's validation items, so only test items are fair."""
    said = partrain("soup", run_of("clouds"), run_of("again"), "-o", tmp_path / "soup.h5", "--json")
    assert said.code == 0, said
    rows = json.loads(said.out)["networks"]
    assert [(row["split"], row["items"]) for row in rows] == [("test", 40)] * 3
    alone = json.loads(partrain("evaluate", run_of("again"), "--json").out)["test"]
    assert rows[1]["loss"] == alone["loss"]


@pytest.mark.usefixtures("stranger")
def test_what_cannot_be_mixed(run_of: Runs, tmp_path: Path) -> None:
    clouds, output = run_of("clouds"), tmp_path / "soup.h5"
    other = checkpoint.read(clouds / "checkpoint.h5")
    (tmp_path / "data.h5").write_bytes(checkpoint.encode(replace(other, manifest=other.manifest | {"data": "0" * 64})))
    for path in run_of("apart"), tmp_path / "data.h5":
        said = partrain("soup", clouds, path, "-o", output)
        assert (said.code, said.errors) == (65, ["bad-checkpoint"]), said
    assert partrain("soup", run_of("own"), "-o", output).code == 77
    assert partrain("soup", clouds, "-o", tmp_path / "soup.onnx").code == 2
    assert not output.exists()
    output.touch()
    assert partrain("soup", clouds, "-o", output).code == 73
