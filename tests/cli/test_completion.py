"""Completion in the shell, as the script of each shell asks for it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from partrain.cli.completion import complete_override, complete_word

BASH = """
export PATH=$PWD:$PATH
eval "$(_PARTRAIN_COMPLETE=source_bash partrain)"
ask() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _partrain_completion partrain; echo "${COMPREPLY[*]}"; }
ask partrain va
ask partrain run --set optimizer.nest
ask partrain run --set sync.rule = av
ask partrain run --set engine.exact =
ask partrain explain choc
ask partrain ls mod
ask partrain run job.toml --log tens
ask partrain runs re
ask partrain runs --on
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash(tmp_path: Path) -> None:
    """It splits words at `=`."""
    script = tmp_path / "partrain"
    script.write_text(f"#!{sys.executable}\nfrom partrain.__main__ import main\nmain()\n")
    script.chmod(0o755)
    done = subprocess.run(["bash", "-c", BASH], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "validate",
        "optimizer.nesterov=",
        "average",
        "false true",
        "choco",
        "models",
        "tensorboard",
        "remove",
        "--only-changed",
    ]


def test_keys_and_values() -> None:
    assert complete_override("workers.0.c") == ["workers.0.count=", "workers.0.cpus="]
    assert complete_override("~optimizer.nest") == ["~optimizer.nesterov"]
    assert complete_override("sync.rule=s") == [
        "sync.rule=scaffold",
        "sync.rule=slowmo",
        "sync.rule=sparseloco",
        "sync.rule=swap",
    ]
    assert complete_override("checkpoint.commit=") == ["checkpoint.commit=coalesce", "checkpoint.commit=every"]
    assert complete_override("seed=") == []
    assert "seed=" in complete_override("")
    assert "average" in complete_word("av")
    assert complete_word("stop.pat") == ["stop.patience", "stop.patience_by"]
