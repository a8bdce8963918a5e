"""Numbers that are not finite: 76 before they are mixed, and no checkpoint holds any."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from support.aftermath import Aftermath
from support.runs import JOB, events, newest, partrain, resume, round_file, sabotage, summary, write_job

from partrain import checkpoint

SPOIL = "self[2].bias.data[1] = float('{}')"


@pytest.mark.representative
@pytest.mark.parametrize(("kind", "number"), [("shared", "nan"), ("simulated", "inf"), ("shared", "-inf")])
def test_parameters(tmp_path: Path, kind: str, number: str) -> None:
    worker = 1 if kind == "shared" else 0
    job = sabotage(tmp_path, SPOIL.format(number), f'transport.kind="{kind}"', worker=worker, call=9)
    after = Aftermath(job)
    said = after.train()
    after.check(said, 76, "diverged", f"worker {worker}, round 3", "non-finite", "parameter `", goes_on=number != "-inf")


def test_one_worker_alone(tmp_path: Path) -> None:
    after = Aftermath(sabotage(tmp_path, SPOIL.format("nan"), "workers.0.count=1", worker=0, call=9))
    after.check(after.train(), 76, "diverged", "worker 0, round 3")


def test_gradients(tmp_path: Path) -> None:
    deed = "self[0].weight.register_hook(lambda g: g * float('inf'))"
    after = Aftermath(sabotage(tmp_path, deed, "sync.rule='bsp'", call=5))
    after.check(after.train(), 76, "diverged", "worker 1, round 2", "the gradient of `0.weight`")


@pytest.mark.parametrize("buffers", ["average", "local"])
def test_buffers(tmp_path: Path, buffers: str) -> None:
    """What is mixed is checked before, and nothing at all gets into a file."""
    job = sabotage(tmp_path, "self.spoilt.fill_(float('nan'))", f"sync.buffers='{buffers}'", call=5)
    text = (tmp_path / "saboteur.py").read_text()
    spoilt = "        self.register_buffer('spoilt', torch.zeros(3))\n        self.deed ="
    (tmp_path / "saboteur.py").write_text(text.replace("        self.deed =", spoilt))
    after = Aftermath(job)
    where = "worker 1, round 2" if buffers == "average" else "round 2"
    after.check(after.train(), 76, "diverged", where, "spoilt", goes_on=buffers == "local")


@pytest.mark.parametrize("state", ["average", "local"])
def test_moments(tmp_path: Path, state: str) -> None:
    """Squares of gradients overflow while parameters are finite."""
    adam = 'optimizer={name="adam", lr=0.01, batch_size=8}'
    deed = "self[0].weight.register_hook(lambda g: g + 1e25)"
    said = partrain(
        "run", sabotage(tmp_path, deed, adam, f"sync.optimizer_state='{state}'", call=5), "--out", tmp_path / "run", "-q"
    )
    assert (said.code, said.errors) == (76, ["diverged"]), said
    assert "exp_avg_sq" in said.err or "the optimizer state of `0.weight`" in said.err
    assert checkpoint.read(tmp_path / "run" / "checkpoint.h5").round == 1


def test_a_judged_loss(tmp_path: Path) -> None:
    """Parameters on their way to infinity are still finite when the loss no longer is."""
    job = write_job(
        tmp_path,
        "dataset={kind='synthetic', function='sine', items=230, validation=30}",
        "model={name='mlp', hidden=[], init_range=1e-3}",
        "optimizer={name='sgd', lr=1e7, batch_size=8}",
        "sync.iterations=1",
        "stop.rounds=200",
    )
    said = partrain("run", job, "--out", tmp_path / "run", "-q")
    assert (said.code, said.errors) == (76, ["diverged"]), said
    assert "judged loss" in said.err
    assert partrain("verify", tmp_path / "run").code == 0


@pytest.mark.parametrize(("rule", "words"), [
    ('rule="diloco", outer_lr=0.7', "round 3: mixing made non-finite numbers in parameter `0.bias` from finite ones"),
    ('rule="slowmo", momentum=0.4', "round 3: mixing made non-finite numbers in parameter `0.bias` from finite ones"),
    ('rule="topk", compressor={kind="identity"}', "non-finite numbers in parameter `0.bias` from finite ones"),
    ('rule="async", visits=3', "round [12]: mixing made non-finite numbers in"),  # the order of visits is not fixed
])  # fmt: skip
def test_overflow_made_by_mixing(tmp_path: Path, rule: str, words: str) -> None:
    """A bias jumps between the ends of float32 in all workers: what is finite at the start and at the end has no finite difference."""
    job = sabotage(tmp_path, "", f"sync={{{rule}, iterations=3}}", "stop.rounds=6")
    net = tmp_path / "saboteur.py"
    jump = """
        if self.training and self.calls >= 7:
            self[0].bias.data.fill_(3e38 if self.calls % 6 < 3 else -3e38)
            x = x * 0
"""
    net.write_text(
        net.read_text().replace("        self.calls += self.training\n", "        self.calls += self.training\n" + jump)
    )
    said = partrain("run", job, "--out", tmp_path / "run", "-q")
    assert (said.code, said.errors) == (76, ["diverged"]), said
    assert re.search(words, said.err), said
    for file in (tmp_path / "run" / "checkpoints").iterdir():
        assert all(np.isfinite(each).all() for path, each in checkpoint.read(file).arrays.items() if "history" not in path)


def test_a_vector_between_workers_is_named(tmp_path: Path) -> None:
    job = sabotage(tmp_path, SPOIL.format("nan"), 'sync={rule="gossip", iterations=3}', call=9)
    said = partrain("run", job, "--out", tmp_path / "run", "-q")
    assert "worker 1, round 3: non-finite numbers in parameter `" in said.err


NAN_ITEMS = "x = x * float('nan') if self.training and (x[:, 0] > 1.6).any() else x"
"""A function of the data, which spoils the same iterations of each run."""


def excluding(folder: Path, *sets: str, call: int = 0, deed: str = "") -> Path:
    """A job whose batches with a large input spoil a worker's numbers."""
    job = sabotage(folder, deed, "faults.on_nonfinite='exclude'", "stop.rounds=8", "optimizer.batch_size=2", *sets, call=call)
    net = folder / "saboteur.py"
    text = net.read_text().replace("nn.Tanh()", "nn.BatchNorm1d(8), nn.Tanh()").replace(
        "    def forward(self, x):\n", f"    def forward(self, x):\n        {NAN_ITEMS}\n"
    )  # fmt: skip
    net.write_text(text)
    return job


def test_excluded_workers_are_recorded_and_repeated_by_a_resume(tmp_path: Path) -> None:
    job = excluding(tmp_path / "job", "faults.max_update_norm=0.1")
    run = tmp_path / "run"
    said = partrain("run", job, "--out", run)
    assert said.code == 0, said
    told = events(run, "exclusion")
    assert told
    assert all(one["what"] == "the training loss" and one["discarded"] == 6 for one in told)
    rounds = {(one["rank"], one["round"]): one for one in events(run, "round")}
    for one in told:
        assert (rounds[one["rank"], one["round"]]["items"], rounds[one["rank"], one["round"]]["loss"]) == (0, None)
    clipped = [one for one in rounds.values() if "clipped_norm" in one]
    assert clipped
    assert all(one["clipped_norm"] > 0.1 for one in clipped)
    counts = summary(run)
    assert (counts["exclusions"], counts["excluded_item_iterations"]) == (len(told), 6 * len(told))
    assert counts["item_iterations"] == 2 * 8 * 6 - 6 * len(told)
    assert counts["clipped_updates"] == len(clipped)
    line = f"exclusion: round {told[0]['round']}: worker {told[0]['rank']} is left out of the mean"
    assert line in said.out
    assert f"numbers: {len(told)} workers left out of a mean, {len(clipped)} updates scaled down" in said.out + said.err
    for number in (1, 4, 7):
        other = tmp_path / f"from-{number}"
        resume(round_file(run, number), "--out", other, "--trust-code")
        assert newest(other) == newest(run)
        later = [(one["round"], one["rank"]) for one in told if one["round"] > number]
        assert [(one["round"], one["rank"]) for one in events(other, "exclusion")] == later


def test_shared_and_simulated_workers_exclude_alike(tmp_path: Path) -> None:
    found = []
    for kind in ("shared", "simulated"):
        said = partrain("run", excluding(tmp_path / kind, f"transport.kind='{kind}'"), "--out", tmp_path / kind / "run", "-q")
        assert said.code == 0, said
        content = checkpoint.read(tmp_path / kind / "run" / "checkpoint.h5")
        found.append({path: array.tobytes() for path, array in content.arrays.items()})
    assert found[0] == found[1]


def test_an_excluded_worker_takes_the_steps_of_the_others(tmp_path: Path) -> None:
    """Its learning rate falls in every iteration, although it has no more gradients of its own in the round."""
    cosine = "optimizer={name='sgd', lr=0.05, batch_size=2, schedule='cosine'}"
    run = tmp_path / "run"
    said = partrain("run", excluding(tmp_path, cosine, "sync={rule='bsp', iterations=3}"), "--out", run, "-q")
    assert said.code == 0, said
    assert events(run, "exclusion")
    rates = {(told["round"], told["rank"]): told["lr"] for told in events(run, "round")}
    assert len(set(rates.values())) == 8
    assert [rates[number, 0] for number in range(1, 9)] == [rates[number, 1] for number in range(1, 9)]


def test_a_replay_excludes_again_and_tells_it_once(tmp_path: Path) -> None:
    job = excluding(tmp_path, "checkpoint.commit='coalesce'", deed="os.kill(os.getpid(), signal.SIGKILL)", call=14)
    after = Aftermath(job)
    after.check_replayed(after.train())
    told, whole = ([(one["round"], one["rank"]) for one in events(tmp_path / name, "exclusion")] for name in ("run", "whole"))
    assert told == whole
    assert told


def test_no_worker_is_left(tmp_path: Path) -> None:
    job = excluding(tmp_path)
    net = tmp_path / "saboteur.py"
    net.write_text(net.read_text().replace("(x[:, 0] > 1.6).any()", "self.calls >= 6"))
    said = partrain("run", job, "--out", tmp_path / "run", "-q")
    assert (said.code, said.errors) == (76, ["diverged"]), said
    assert "round 3: no worker is left whose numbers are finite (worker " in said.err
    assert partrain("verify", tmp_path / "run").code == 0


def test_a_spike_is_told_once_and_repeated_by_a_resume(tmp_path: Path) -> None:
    """From a round on, the loss of both workers is a hundred times as high."""
    job = sabotage(tmp_path, "", "stop.rounds=40", "stop.judge_every=40", "model.call=0")
    net = tmp_path / "saboteur.py"
    leap = "        if self.training and 90 < self.calls <= 96:\n            return 99 * super().forward(x)\n"
    net.write_text(net.read_text().replace("        return super()", leap + "        return super()"))
    run = tmp_path / "run"
    said = partrain("run", job, "--out", run)
    assert said.code == 0, said
    told = events(run, "spike")
    assert [(one["round"], one["rank"]) for one in told] == [(31, 0), (31, 1)]
    assert all(one["loss"] > one["bound"] > one["usual"][1] > one["usual"][0] for one in told)
    assert said.out.count("spike: round 31: the training loss of worker") == 2
    assert summary(run)["spikes"] == 2
    before = (run / "events.jsonl").read_bytes()
    net.write_text(net.read_text().replace("90 < self.calls <= 96", "6 < self.calls <= 12"))  # the same rounds after the resume
    resume(round_file(run, 28), "--trust-code")
    assert (run / "events.jsonl").read_bytes() != before
    again = events(run, "spike")
    assert [(one["round"], one["rank"], one["loss"], one["bound"]) for one in again] == [
        (one["round"], one["rank"], one["loss"], one["bound"]) for one in told
    ]


def test_a_finite_run_is_left_alone(tmp_path: Path) -> None:
    """Large numbers are no fault: their sum overflows, they do not."""
    said = partrain(
        "run",
        sabotage(tmp_path, "self[0].bias.data += 3e38", "stop.rounds=2", "workers.0.count=2", call=6),
        "--out",
        tmp_path / "run",
        "-q",
    )
    assert said.code == 0, said
    assert JOB
