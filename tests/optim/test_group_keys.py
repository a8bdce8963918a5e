"""`[[optimizer.groups]]` in a job file: what is refused, and where the message points."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.runs import JOB, partrain, train

GROUP = '\n[[optimizer.groups]]\nmatch = ["2.*"]\nlr = 0.01\n'


@pytest.mark.parametrize(("group", "said"), [
    (GROUP.replace("lr =", "lrr ="), "unknown key `lrr` in [[optimizer.groups]]"),
    (GROUP.replace("0.01", "0"), "`lr`: expected more than 0, got 0"),
    (GROUP.replace("lr = 0.01\n", ""), "the group changes nothing: give it `lr` or `weight_decay`"),
    (GROUP.replace("0.01", "1e-50"), "`lr` = 1e-50 is 0 in float32"),
    (GROUP.replace('match = ["2.*"]\n', ""), "missing key `match` in [[optimizer.groups]]"),
    (GROUP.replace('["2.*"]', '"2.*"'), 'write ["2.*"]'),
    (GROUP.replace("[[", "[").replace("]]", "]"), "write [[optimizer.groups]]"),
])  # fmt: skip
def test_a_wrong_group_is_told_by_validate(tmp_path: Path, group: str, said: str) -> None:
    job = tmp_path / "job.toml"
    job.write_text(JOB + group)
    told = partrain("validate", job)
    assert told.code == 78
    assert said in told.err + told.out, told
    assert "job.toml:38:" in told.out or "job.toml:39:" in told.out or "job.toml:40:" in told.out


@pytest.mark.parametrize("name", ["rprop", "lbfgs"])
@pytest.mark.parametrize("key", ["groups", "layer_decay"])
def test_optimizers_without_groups_refuse_them(tmp_path: Path, name: str, key: str) -> None:
    job = tmp_path / "job.toml"
    job.write_text(JOB)
    value = '[{match=["2.*"], lr=0.1}]' if key == "groups" else "0.5"
    told = partrain("validate", job, "--set", f'optimizer={{name="{name}", lr=0.1, {key}={value}}}')
    assert told.code == 78
    assert f'`{key}` has no effect on the steps of "{name}"' in told.err + told.out


def test_delay_compensation_refuses_several_rates(tmp_path: Path) -> None:
    job = tmp_path / "job.toml"
    job.write_text(JOB + GROUP)
    told = partrain("validate", job, "--set", 'sync={rule="async", iterations=3, compensation=0.04}')
    assert told.code == 78
    assert "`compensation` divides updates by one learning rate, and [optimizer] has several" in told.err + told.out
    told = partrain("validate", job, "--set", 'sync={rule="async", iterations=3}')
    assert told.code == 0, told


def test_an_unknown_pattern_leaves_no_run(tmp_path: Path) -> None:
    keys = 'optimizer.groups=[{match=["haed.*"], lr=0.1}]'
    job = tmp_path / "job.toml"
    job.write_text(JOB)
    for words in (("plan", job, "--set", keys), ("run", job, "--set", keys, "--out", tmp_path / "run")):
        told = partrain(*words)
        assert told.code == 78, told
        assert told.err.count('no parameter is called "haed.*"') == 1, told
        assert f"--set {keys}" in told.err
        assert "^^^^^^^^ there are 0.weight" in told.err
    assert not (tmp_path / "run").exists()


def test_the_decay_of_a_group_is_a_decay(tmp_path: Path) -> None:
    train(tmp_path, 'optimizer={name="sgd", lr=0.1, batch_size=8, decay="matrices", groups=[{match=["2.*"], weight_decay=0.1}]}')
