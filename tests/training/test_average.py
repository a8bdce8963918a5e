"""The average of the network over rounds: its formulas, and that it is judged, written and evaluated while training goes on."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.runs import JOB, events, newest, partrain, round_file, train, write_job
from support.shared_runs import once

from partrain import checkpoint
from partrain.training.average import kept

NORM = "model.batch_norm=true"
ROUNDS = 5


def arrays(run: Path, number: int, group: str) -> dict[str, NDArray[Any]]:
    """The arrays of a group of a round's checkpoint."""
    found = checkpoint.read(round_file(run, number)).arrays
    return {path.removeprefix(group): array for path, array in found.items() if path.startswith(group)}


def trained(factory: pytest.TempPathFactory, name: str, *sets: str) -> Path:
    return once(factory, name, lambda folder: train(folder, f"stop.rounds={ROUNDS}", NORM, *sets)) / "run"


@pytest.fixture
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory, "average-plain")


@pytest.fixture
def ema(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory, "average-ema", "sync.ema=0.8")


@pytest.fixture
def swa(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory, "average-swa", "sync.swa=0.6")


@pytest.mark.parametrize("decay", [0.001, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("iterations", [1, 3, 40])
def test_the_share_that_is_kept_is_the_product_over_the_iterations(decay: float, iterations: int) -> None:
    for steps in 0, 1, 5, 9, 10, 2000:
        product = math.prod(min(t / (t + 1), decay) for t in range(steps, steps + iterations))
        assert kept(decay, steps, iterations) == pytest.approx(product, rel=1e-12, abs=1e-300)


def test_training_goes_on_as_without_the_average(plain: Path, ema: Path, swa: Path) -> None:
    for number in range(1, ROUNDS + 1):
        params = arrays(ema, number, "training/")["params"]
        network = arrays(plain, number, "model/")
        assert all(array.tobytes() in params.tobytes() for name, array in network.items() if name.endswith(("weight", "bias")))
        assert (arrays(swa, number, "training/")["params"] == params).all()
        buffers = {name: array for name, array in network.items() if "running" in name or "batches" in name}
        assert buffers
        for name, array in buffers.items():
            assert array.tobytes() == arrays(ema, number, "training/buffers/")[name].tobytes()
            assert array.tobytes() == arrays(swa, number, "training/buffers/")[name].tobytes()
    losses = [[event["loss"] for event in events(run, "round")] for run in (plain, ema, swa)]
    assert losses[0] == losses[1] == losses[2]
    assert not any(path.startswith("training/") for path in checkpoint.read(plain / "checkpoint.h5").arrays)


def test_an_exponential_average_of_networks_and_their_buffers(plain: Path, ema: Path) -> None:
    average: dict[str, Any] = {}
    for number in range(1, ROUNDS + 1):
        share = kept(0.8, 3 * (number - 1), 3)
        for name, array in arrays(plain, number, "model/").items():
            if array.dtype.kind == "f":
                average[name] = array.astype(np.float64) * (1 - share) + (average[name] * share if number > 1 else 0)
            else:
                average[name] = array
        shown = arrays(ema, number, "model/")
        assert shown.keys() == average.keys()
        for name, array in shown.items():
            np.testing.assert_allclose(array, average[name], rtol=1e-5, atol=1e-7, err_msg=f"{number} {name}")
    assert int(arrays(ema, ROUNDS, "training/")["averaged"]) == 3 * ROUNDS


def test_a_mean_of_networks_from_a_share_of_the_run_on(plain: Path, swa: Path) -> None:
    for number in 1, 2:
        for name, array in arrays(swa, number, "model/").items():
            assert array.tobytes() == arrays(plain, number, "model/")[name].tobytes()
    for number in 3, 4, 5:  # 0.6 of 5 rounds
        assert int(arrays(swa, number, "training/")["averaged"]) == number - 2
        networks = [arrays(plain, earlier, "model/") for earlier in range(3, number + 1)]
        for name, array in arrays(swa, number, "model/").items():
            if name.endswith(("weight", "bias")):
                mean = np.mean([network[name].astype(np.float64) for network in networks], axis=0)
                np.testing.assert_allclose(array, mean, rtol=1e-5, atol=1e-7)


def test_the_statistics_of_a_mean_are_those_of_its_own_answers(swa: Path) -> None:
    from partrain.inference.network import load_dataset, split_items
    from partrain.inference.open import load_job

    content = checkpoint.read(swa / "checkpoint.h5")
    loaded = load_job(content, swa / "checkpoint.h5", trusted=False)
    dataset = load_dataset(loaded, content)
    items, _ = split_items(loaded, dataset)
    network = arrays(swa, ROUNDS, "model/")
    answers = dataset.inputs[items].astype(np.float64) @ network["0.weight"].T.astype(np.float64) + network["0.bias"]
    np.testing.assert_allclose(network["1.running_mean"], answers.mean(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(network["1.running_var"], answers.var(0, ddof=1), rtol=1e-4)


@pytest.mark.parametrize("name", ["ema", "swa"])
def test_the_average_is_what_is_judged_and_evaluated(name: str, plain: Path, request: pytest.FixtureRequest) -> None:
    run: Path = request.getfixturevalue(name)
    judged = events(run, "judgement")[-1]
    assert judged["loss"] != events(plain, "judgement")[-1]["loss"]
    told = json.loads((run / "summary.json").read_text())
    newest = json.loads(partrain("evaluate", run, "--newest", "--json").out)
    assert newest["validation"]["loss"] == pytest.approx(judged["loss"], rel=1e-6)
    found = json.loads(partrain("evaluate", run, "--json").out)
    assert found["round"] == told["best"]["round"] == told["tested_round"]
    assert found["validation"]["loss"] == pytest.approx(told["best"]["loss"], rel=1e-6)
    assert found["test"]["loss"] == pytest.approx(told["test"]["loss"], rel=1e-6)


@pytest.mark.parametrize("average", ["ema=0.9", "swa=0.4"])
@pytest.mark.parametrize("rule", ["average", "gossip", "easgd"])
def test_transports_give_the_same_bits(rule: str, average: str, tmp_path: Path) -> None:
    sets = (NORM, f"sync={{rule='{rule}', iterations=2, {average}}}", "workers.0.count=3")
    runs = [train(tmp_path / kind, *sets, f"transport.kind='{kind}'") for kind in ("shared", "simulated")]
    contents = [checkpoint.read(run / "checkpoint.h5").arrays for run in runs]
    assert contents[0].keys() == contents[1].keys()
    for path, array in contents[0].items():
        assert array.tobytes() == contents[1][path].tobytes(), path


def test_a_moved_end_moves_no_start(tmp_path: Path) -> None:
    sets = ("sync.swa=0.5", "stop.rounds=4")
    run = train(tmp_path, *sets)
    said = partrain("resume", round_file(run, 1), "--until", "rounds=12", "--quiet")
    assert said.code == 0, said
    assert int(arrays(run, 12, "training/")["averaged"]) == 11
    assert newest(run) == round_file(run, 12).read_bytes()


@pytest.mark.parametrize(("sets", "message"), [
    (["sync.ema=0.9", "sync.swa=0.5"], "[sync] has both `ema` and `swa`"),
    (["sync.ema=1.0"], "`ema`: expected more than 0 and less than 1"),
    (["sync={rule='hogwild', iterations=2, ema=0.9}"], 'under rule "hogwild" all workers train one vector in place'),
    (["sync.ema=0.9", "sync.buffers='local'"], 'with buffers = "local" there are no common buffers'),
    (["sync.swa=0.9", "~stop.rounds", "stop.seconds=5"], "`swa` needs the length of the run"),
])  # fmt: skip
def test_an_average_that_cannot_be_kept_is_refused(sets: list[str], message: str, tmp_path: Path) -> None:
    said = partrain("validate", write_job(tmp_path, *sets, text=JOB))
    assert said.code == 78
    assert message in said.out
