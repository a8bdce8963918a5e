"""`[hooks] after_judgement`: a user's function after each judgement, on one worker, tried before training."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.machines import MANY, Site
from support.runs import events, newest, partrain, resume, round_file, summary, train, write_job

from partrain import checkpoint

HOOK = """
import pathlib

SEEN = pathlib.Path(__file__).with_name("seen")


def after(judgement):
    assert not judgement.module.training
    parts = [judgement.round, judgement.item_iterations, judgement.loss, judgement.accuracy, judgement.best, judgement.dry_run]
    with SEEN.open("a") as file:
        print(*parts, file=file)
    {deed}
"""


def write_hook(folder: Path, deed: str = "return None") -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "hook.py").write_text(HOOK.replace("{deed}", deed))
    return "hooks.after_judgement='hook.py:after'"


def seen(folder: Path) -> list[list[str]]:
    return [line.split() for line in (folder / "seen").read_text().splitlines()]


def test_the_function_gets_every_judgement_once_and_its_numbers_are_told(tmp_path: Path) -> None:
    hook = write_hook(tmp_path, 'return {"gap": judgement.loss - 0.5, "norm": judgement.module[0].weight.norm()}')
    run = train(tmp_path, hook, "stop.rounds=4", "stop.judge_every=2")
    judged = events(run, "judgement")
    trial, *calls = seen(tmp_path)
    assert (trial[0], trial[-1]) == ("0", "True")
    assert [[int(call[0]), int(call[1]), float(call[2]), float(call[3]), call[4]] for call in calls] == [
        [event["round"], event["item_iterations"], event["loss"], event["metrics"]["accuracy"], str(event["best"])]
        for event in judged
    ]
    assert [event["metrics"]["gap"] for event in judged] == [pytest.approx(event["loss"] - 0.5) for event in judged]
    assert summary(run)["metrics"].keys() == {"accuracy", "gap", "norm"}
    network = checkpoint.read(run / "checkpoint.h5").arrays["model/0.weight"]
    assert judged[-1]["metrics"]["norm"] == pytest.approx(float((network.astype(float) ** 2).sum() ** 0.5), rel=1e-5)
    plain = train(tmp_path / "plain", "stop.rounds=4", "stop.judge_every=2")
    assert {path: array.tobytes() for path, array in checkpoint.read(run / "checkpoint.h5").arrays.items()} == {
        path: array.tobytes() for path, array in checkpoint.read(plain / "checkpoint.h5").arrays.items()
    }


@pytest.mark.usefixtures("stranger")
@pytest.mark.parametrize("kind", ["shared", "simulated"])
@pytest.mark.parametrize("answer", ['"stop" if judgement.round == 2 else None', '{"gap": 1, "stop": judgement.round == 2}'])
def test_the_function_stops_all_workers(kind: str, answer: str, tmp_path: Path) -> None:
    run = train(tmp_path, write_hook(tmp_path, f"return {answer}"), f"transport.kind='{kind}'", "workers.0.count=3")
    told = summary(run)
    assert (told["status"], told["reason"], told["rounds"]) == ("finished", "after_judgement", 2)
    assert told["test"]
    said = partrain("resume", run, "--quiet")
    assert (said.code, said.errors) == (77, ["not-trusted"])
    assert partrain("evaluate", run).code == 0, "the network needs no code of the user's"


def test_a_resume_calls_the_function_for_rounds_it_trains(tmp_path: Path) -> None:
    run = train(tmp_path, write_hook(tmp_path, 'return {"gap": judgement.loss}'), "stop.rounds=3")
    whole, told = newest(run), events(run, "judgement")
    (tmp_path / "seen").unlink()
    resume(round_file(run, 2), "--trust-code")
    assert [call[0] for call in seen(tmp_path)] == ["0", "3"]
    assert newest(run) == whole
    assert [event["metrics"] for event in events(run, "judgement")] == [event["metrics"] for event in told]
    (tmp_path / "seen").unlink()
    assert "nothing to do" in resume(run, "--trust-code").out
    assert not (tmp_path / "seen").exists()


@pytest.mark.usefixtures("stranger")
def test_only_trainings_are_advised_to_trust_the_function(tmp_path: Path) -> None:
    job = write_job(tmp_path, write_hook(tmp_path), "stop.rounds=1")
    lines = partrain("run", job, "--out", tmp_path / "run", "--quiet").out.splitlines()
    trusting = [line.split()[1] for line in lines if line.startswith("  partrain") and "--trust-code" in line]
    assert trusting == ["refit", "resume"]
    assert any(line.startswith("  partrain export") for line in lines)


def test_the_function_sees_the_average_where_that_is_judged(tmp_path: Path) -> None:
    run = train(tmp_path, write_hook(tmp_path, 'return {"sum": judgement.module[0].weight.double().sum()}'), "sync.ema=0.8")
    network = checkpoint.read(run / "checkpoint.h5").arrays["model/0.weight"]
    assert events(run, "judgement")[-1]["metrics"]["sum"] == pytest.approx(network.astype(float).sum(), rel=1e-12)


@pytest.mark.parametrize(("deed", "message"), [
    ("raise ValueError('no room')", "`hook.py:after`, tried before any worker starts: ValueError: no room"),
    ("return 5", "`hook.py:after` returned int '5'; expected None, a dict of numbers, or \"stop\""),
    ('return "Stop"', "`hook.py:after` returned str 'Stop'; expected None"),
    ('return {"loss": 1.0}', "returned a number `loss`, which is judged already"),
    ('return {"accuracy": 1.0}', "returned a number `accuracy`, which is judged already"),
    ('return {"gap": "big"}', "returned str for `gap`; expected a number"),
    ('return {"gap": float("nan")}', "returned nan for `gap`"),
    ("return {3: 1.0}", "returned a number under the key 3"),
    ('return {"stop": 1}', "returned 1 for `stop`; expected True or False"),
    ("judgement.module[0].weight.zero_()", "changed `0.weight` of the network, which it may only read"),
])  # fmt: skip
def test_a_function_that_does_wrong_is_told_before_any_worker_starts(deed: str, message: str, tmp_path: Path) -> None:
    job = write_job(tmp_path, write_hook(tmp_path, deed))
    said = partrain("run", job, "--out", tmp_path / "run", "--quiet")
    assert (said.code, said.errors) == (71, ["user-code"]), said
    assert message in said.err
    assert "[hooks] after_judgement" in said.err
    assert not (tmp_path / "run").exists()
    assert ("hook.py" in said.err.partition("\n")[2]) == deed.startswith("raise"), "the user's frames"


def test_a_function_that_fails_later_is_told_with_its_round(tmp_path: Path) -> None:
    job = write_job(tmp_path, write_hook(tmp_path, "1 / (judgement.round - 2)"))
    said = partrain("run", job, "--out", tmp_path / "run", "--quiet")
    assert (said.code, said.errors) == (71, ["user-code"]), said
    assert "`hook.py:after`, after round 2: ZeroDivisionError" in said.err
    assert "1 / (judgement.round - 2)" in said.err
    assert [event["round"] for event in events(tmp_path / "run", "judgement")] == [1]


@pytest.mark.parametrize(("sets", "message"), [
    (["hooks.after_judgement='hook.py:aftr'"], "`hook.py` has no `aftr`"),
    (["hooks.after_judgement='hok.py:after'"], "no file `hok.py` next to the job"),
    (["hooks.after_judgement='hook.py'"], "`after_judgement`"),
    (["hooks.after_judgment='hook.py:after'"], "did you mean `after_judgement`"),
    (["hooks.after_judgement='hook.py:after'", "dataset.validation=0"], "`after_judgement` is never called"),
])  # fmt: skip
def test_a_table_that_is_wrong_is_told_by_validate(sets: list[str], message: str, tmp_path: Path) -> None:
    write_hook(tmp_path)
    said = partrain("validate", write_job(tmp_path, *sets))
    assert said.code in (66, 78), said
    assert message in said.out + said.err


@pytest.mark.parametrize(
    ("end", "remarked"), [("Softmax(1)", "softmax"), ("Sigmoid()", "sigmoid"), ("LogSoftmax(1)", ""), ("Identity()", "")]
)
@pytest.mark.parametrize("plain", [True, False], ids=["nn.Sequential", "a subclass"])
def test_probabilities_where_logits_are_expected_get_a_remark(end: str, remarked: str, plain: bool, tmp_path: Path) -> None:
    """A plain stack of layers, too, whose gradient is computed without the task."""
    own = f"class Net(nn.Sequential):\n def __init__(self): super().__init__(nn.Linear(2, 3), nn.{end})"
    (tmp_path / "net.py").write_text(
        f"from torch import nn\n{f'def Net(): return nn.Sequential(nn.Linear(2, 3), nn.{end})' if plain else own}\n"
    )
    job = write_job(tmp_path, 'model={name="net.py:Net"}', "stop.rounds=1")
    said = partrain("run", job, "--out", tmp_path / "run", "--quiet")
    assert said.code == 0, said
    assert said.err.count("expects logits") == bool(remarked)
    assert f"`net.py:Net` ends in a {remarked}" in said.err or not remarked


def test_a_plain_stack_with_too_few_outputs_is_told_how_many(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "from torch import nn\ndef net(): return nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1))\n"
    )
    said = partrain("run", write_job(tmp_path, 'model={name="net.py:net"}'), "--out", tmp_path / "run", "--quiet")
    assert (said.code, said.err.count("expected (items, 3) for this data set and task")) == (71, 1), said


def test_a_sigmoid_in_a_regression_is_no_mistake(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "from torch import nn\nclass Net(nn.Sequential):\n def __init__(self): super().__init__(nn.Linear(1, 1), nn.Sigmoid())\n"
    )
    sine = "dataset={kind='synthetic', function='sine', items=230, validation=30}"
    job = write_job(tmp_path, 'model={name="net.py:Net"}', sine, "stop.rounds=1")
    said = partrain("run", job, "--out", tmp_path / "run", "--json")
    assert (said.code, said.err) == (0, "")
    assert json.loads(said.out)["status"] == "finished"


@pytest.mark.slow
def test_two_machines_share_the_stop_and_the_average(tmp_path: Path) -> None:
    """They give the bits of one machine with as many workers, and a resume takes the start of the average from the checkpoint."""
    hook = write_hook(tmp_path / "job", 'return {"gap": judgement.loss, "stop": judgement.round == 3}')
    write_hook(tmp_path / "one", 'return {"gap": judgement.loss, "stop": judgement.round == 3}')
    sets = (hook, "sync.swa=0.3", "model.batch_norm=true", "stop.rounds=6")
    one = train(tmp_path / "one", *sets, "workers.0.count=4", text=MANY)
    job, site = write_job(tmp_path / "job", *sets, text=MANY), Site(tmp_path)
    said = site.run(("run", job, "--out", tmp_path / "run", "--quiet"))
    assert [each.code for each in said] == [0, 0], said
    assert summary(tmp_path / "run")["reason"] == "after_judgement"
    assert [event["metrics"] for event in events(tmp_path / "run", "judgement")] == [
        event["metrics"] for event in events(one, "judgement")
    ]
    again = (
        "resume",
        round_file(tmp_path / "run", 1),
        "--trust-code",
        "--quiet",
        "--out",
        tmp_path / "again",
        "--until",
        "rounds=9",
    )
    said = site.run(again)
    assert [each.code for each in said] == [0, 0], said
    for run in tmp_path / "run", tmp_path / "again":
        found, expected = (checkpoint.read(path / "checkpoint.h5").arrays for path in (run, one))
        assert found.keys() == expected.keys()
        assert all(found[path].tobytes() == expected[path].tobytes() for path in expected)
