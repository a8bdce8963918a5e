"""Networks that partrain does not train end in the dry run with one line; a network that changes its input is exported."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.runs import partrain, write_job

HEAD = "import torch\nfrom torch import nn\n\n\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
SPARSE = """        self.table, self.head = nn.Embedding(4, 8, sparse=True), nn.Linear(8, 3)
    def forward(self, x):
        return self.head(self.table((x[:, 0] > 0).long()))
"""
GROWING = """        self.head = nn.Linear(2, 3)
        self.register_buffer("memory", torch.zeros(1))
    def forward(self, x):
        if self.training:
            self.memory = torch.cat([self.memory, torch.zeros(1)])
        return self.head(x)
"""
IN_PLACE = """        self.head = nn.Linear(2, 3)
    def forward(self, x):
        x += 1
        return self.head(x)
"""


def job_of(folder: Path, body: str) -> Path:
    (folder / "net.py").write_text(HEAD + body)
    return write_job(folder, 'model={name="net.py:Net"}', "stop.rounds=1")


@pytest.mark.parametrize(("body", "words"), [
    (SPARSE, "is sparse, and partrain trains on dense ones; leave sparse=True out"),
    (GROWING, "buffer `memory` had shape (1,)"),
], ids=["sparse", "growing"])  # fmt: skip
def test_the_dry_run_names_what_cannot_be_trained(tmp_path: Path, body: str, words: str) -> None:
    said = partrain("run", job_of(tmp_path, body), "--out", tmp_path / "run", "-q")
    assert (said.code, said.errors) == (71, ["user-code"]), said
    assert words in said.err
    assert "INTERNAL ASSERT" not in said.err


def test_a_network_that_changes_its_input_in_place_is_exported(tmp_path: Path) -> None:
    assert partrain("run", job_of(tmp_path, IN_PLACE), "--out", tmp_path / "run", "-q").code == 0
    said = partrain("export", tmp_path / "run", "-f", "safetensors", "-o", tmp_path / "net.safetensors", "--trust-code")
    assert said.code == 0, said
