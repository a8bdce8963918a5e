"""`best.h5` of a run folder is the checkpoint of the best judgement, at every moment and for every command."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from support.runs import SIMULATED, events, newest, partrain, resume, round_file, summary, train
from support.shared_runs import once

from partrain import checkpoint
from partrain.checkpoint import files
from partrain.errors import InputOutputFailed
from partrain.launch import checkpoint_writer
from partrain.runs.listing import size_of


def make(folder: Path) -> None:
    train(folder, SIMULATED, "stop.rounds=6", "checkpoint.keep=1", "seed=11", "optimizer.lr=0.3")


@pytest.fixture
def run(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of a run whose best round is neither the first nor the last of six; it keeps one checkpoint and the best."""
    shutil.copytree(once(tmp_path_factory, "best", make) / "run", tmp_path / "run")
    os.link(tmp_path / "run/checkpoint.h5", tmp_path / "newest.h5")
    for name, number in ("checkpoint.h5", 6), ("best.h5", best_round(tmp_path / "run")):  # a copy has no hard links
        (tmp_path / "run" / name).unlink()
        os.link(round_file(tmp_path / "run", number), tmp_path / "run" / name)
    return tmp_path / "run"


def best_round(run: Path) -> int:
    return int([event["round"] for event in events(run, "judgement") if event["best"]][-1])


def test_the_best_checkpoint_has_a_second_name(run: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    original = once(tmp_path_factory, "best", make) / "run"
    best = best_round(original)
    assert 1 < best < 6
    assert summary(original)["best"]["round"] == best
    assert (original / "best.h5").samefile(round_file(original, best))
    assert checkpoint.verify(original / "best.h5")["round"] == best
    assert sorted(path.name for path in (original / "checkpoints").iterdir()) == [
        round_file(original, number).name for number in (best, 6)
    ]
    others = sum((original / name).stat().st_size for name in ("job.toml", "events.jsonl", "summary.json"))
    assert size_of(original) == others + sum(path.stat().st_size for path in (original / "checkpoints").iterdir())


def test_commands_take_the_best_of_a_run_folder(run: Path, tmp_path: Path) -> None:
    best = best_round(run)
    for words in ["evaluate", run], ["inspect", run], ["inspect", run, "--tensors"]:
        for options, wanted in ((), best), (("--newest",), 6):
            said = partrain(*words, *options, "--json")
            assert said.code == 0, said
            assert json.loads(said.out).get("round", wanted) == wanted
    np.save(tmp_path / "items.npy", np.zeros((1, 2), np.float32))
    assert json.loads(partrain("predict", run, "-i", tmp_path / "items.npy", "--json").out)["round"] == best
    exported = tmp_path / "best.safetensors"
    assert partrain("export", run, "-f", "safetensors", "-o", exported).code == 0
    assert partrain("diff", run, run / "best.h5").code == 0
    assert partrain("diff", run, run / "checkpoint.h5").code == 1
    assert partrain("diff", run, run, "--newest").code == 0
    assert partrain("soup", run, run, "-o", tmp_path / "soup.h5").code == 0
    assert partrain("diff", tmp_path / "soup.h5", run / "best.h5").code == 0


def test_the_end_of_a_run_names_its_best_round(tmp_path: Path) -> None:
    train(tmp_path, "stop.rounds=6")
    said = partrain("run", tmp_path / "job.toml", "--out", tmp_path / "again", "-q")
    best = best_round(tmp_path / "again")
    assert f"best: round {best}, loss 0.6804, accuracy 0.7667 (best.h5, the network of this run)\n" in said.out
    assert f"test, round {best}: loss 0.7207, accuracy 0.7250\n" in said.out
    assert f"\n  partrain predict {tmp_path / 'again'} --input FILE\n" in said.out
    assert f"\n  partrain evaluate {tmp_path / 'again'}\n" in said.out
    assert (
        "best: round 2, the newest judged"
        in partrain("run", tmp_path / "job.toml", "--out", tmp_path / "short", "-q", "--set", "stop.rounds=2").out
    )


def test_without_a_best_one_the_newest_is_taken(run: Path, tmp_path: Path) -> None:
    said = partrain("evaluate", run / "checkpoint.h5", "--newest")
    assert (said.code, said.errors) == (66, ["no-input"])
    assert "checkpoint.h5: --newest takes a run folder" in said.err
    never = train(tmp_path / "never", SIMULATED, "dataset.validation=0", "stop.judge_every=5", "stop.rounds=1")
    assert not (never / "best.h5").exists()
    said = partrain("evaluate", never, "--json")
    assert (said.code, said.err, json.loads(said.out)["round"]) == (0, "", 1)
    assert summary(never)["tested_round"] == 1


def test_a_best_checkpoint_resumes_and_stays_right(run: Path, tmp_path: Path) -> None:
    before, best = newest(run), (run / "best.h5").read_bytes()
    resume(run / "best.h5")
    assert (newest(run), (run / "best.h5").read_bytes()) == (before, best)


def test_a_resume_from_an_older_checkpoint_takes_its_best(tmp_path: Path) -> None:
    run = train(tmp_path, "stop.rounds=6")
    bests = [event["round"] for event in events(run, "judgement") if event["best"]]
    assert bests == [1, 2]
    resume(round_file(run, 1), "--until", "rounds=1")  # nothing to do: the folder stays as it is
    assert (run / "best.h5").samefile(round_file(run, 2))
    before = (run / "best.h5").read_bytes()
    commit = checkpoint_writer.commit
    try:  # the resumed run ends before its first file
        checkpoint_writer.commit = lambda *_: (_ for _ in ()).throw(InputOutputFailed("no room"))  # type: ignore[assignment]
        resume(round_file(run, 1), code=74)
    finally:
        checkpoint_writer.commit = commit
    assert (run / "best.h5").samefile(round_file(run, 1))
    assert (run / "checkpoint.h5").samefile(round_file(run, 1))
    resume(run)
    assert (run / "best.h5").samefile(round_file(run, 2))
    assert (run / "best.h5").read_bytes() == before


def test_a_resume_mends_what_a_crash_between_the_two_names_left(run: Path) -> None:
    best = best_round(run)
    (run / "best.h5").unlink()
    os.link(round_file(run, 6), run / "best.h5")
    resume(run, "--until", "rounds=7")
    assert (run / "best.h5").samefile(round_file(run, best))


def test_a_best_that_is_gone_leaves_no_other_under_its_name(run: Path, tmp_path: Path) -> None:
    files.link_best(run, 5)  # an existing one stays
    assert (run / "best.h5").samefile(round_file(run, best_round(run)))
    round_file(run, best_round(run)).unlink()
    resume(run, "--until", "rounds=7")
    assert checkpoint.read(run / "best.h5").round == 2  # the other name of the same file
    (run / "best.h5").unlink()
    resume(run, "--until", "rounds=8")
    assert not (run / "best.h5").exists()
    said = partrain("evaluate", run)
    assert said.code == 0
    assert "checkpoint.h5: the checkpoint of the best round, 2, is gone; this is the newest round, 8" in said.err
    assert summary(run)["tested_round"] == 8
    resume(run / "checkpoint.h5", "--until", "rounds=9", "--out", tmp_path / "elsewhere")
    own = [event["round"] for event in events(tmp_path / "elsewhere", "judgement") if event["best"]]
    assert (tmp_path / "elsewhere/best.h5").exists() == bool(own)


def test_a_new_folder_gets_the_best_one_and_keeps_it(run: Path, tmp_path: Path) -> None:
    other, best = tmp_path / "elsewhere", (run / "best.h5").read_bytes()
    resume(run, "--until", "rounds=7", "--out", other)
    assert (other / "best.h5").read_bytes() == best
    assert summary(other)["tested_round"] == best_round(run)
    assert summary(other)["test"] == summary(run)["test"]
    resume(other, "--until", "rounds=8")
    assert (other / "best.h5").read_bytes() == best
    assert summary(other)["tested_round"] == best_round(run)


def test_a_run_is_removed_with_its_best(run: Path) -> None:
    assert partrain("runs", "remove", run, "--yes").code == 0
    assert not run.exists()
