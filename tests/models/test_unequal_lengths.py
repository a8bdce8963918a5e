"""Padding changes nothing: networks for sequences answer padded items as torch's packed sequences, and as each item alone."""

from pathlib import Path
from typing import Any

import pytest
import torch
from support.networks import SECTIONS
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence

from partrain.byte_layout import LENGTHS, lay_out_parts
from partrain.models import Interface, build
from partrain.tasks.task import PADDING, Language
from partrain.training.batches import Samples, split, unpack

LENGTH_OF = [5, 1, 9, 3, 9, 2]
TABLES: list[dict[str, Any]] = [
    {"name": "rnn", "hidden": 6},
    {"name": "lstm", "hidden": 6, "layers": 2, "bidirectional": True},
    {"name": "gru", "hidden": 6, "bidirectional": True},
    {"name": "transformer", "width": 8, "layers": 2, "heads": 2},
]


def interface(task: str, longest: int, tokens: bool) -> Interface:
    shape = (longest,) if tokens else (longest, 2)
    parts, _ = lay_out_parts([("", "int64" if tokens else "float32", shape), (LENGTHS, "int64", ())])
    return Interface(shape, 7 if task == "language" else 3, task, 7 if tokens else None, parts=parts)


def network(table: dict[str, Any], task: str, longest: int, tokens: bool) -> nn.Module:
    torch.manual_seed(0)
    return build(SECTIONS.validate_python(table), Path(), interface(task, longest, tokens)).eval()


def sequences(tokens: bool) -> list[Tensor]:
    draw = torch.Generator().manual_seed(1)
    return [torch.randint(7, (n,), generator=draw) if tokens else torch.randn(n, 2, generator=draw) for n in LENGTH_OF]


def padded(items: list[Tensor], longest: int, filling: int = 0) -> tuple[Tensor, Tensor]:
    rows = torch.full((len(items), longest, *items[0].shape[1:]), filling, dtype=items[0].dtype)
    for row, item in zip(rows, items, strict=True):
        row[: len(item)] = item
    return rows, torch.tensor([len(item) for item in items])


@pytest.mark.parametrize("task", ["classification", "language"])
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table["name"])
def test_exporters_see_no_packed_sequences(monkeypatch: pytest.MonkeyPatch, table: dict[str, Any], task: str) -> None:
    if task == "language" and table.get("bidirectional"):
        pytest.skip("refused")
    net, items = network(table | {"layers": 2}, task, 9, tokens=True), padded(sequences(tokens=True), 9, filling=3)
    expected = net(items)
    monkeypatch.setattr(torch.compiler, "is_exporting", lambda: True)
    monkeypatch.setattr("partrain.models.recurrent.pack_padded_sequence", None)
    torch.testing.assert_close(net(items), expected)


@pytest.mark.parametrize("tokens", [True, False])
@pytest.mark.parametrize("task", ["classification", "language"])
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table["name"])
def test_more_padding_and_other_fillings_change_nothing(table: dict[str, Any], task: str, tokens: bool) -> None:
    if task == "language" and (not tokens or table.get("bidirectional")):
        pytest.skip("refused")
    items = sequences(tokens)
    net = network(table, task, 14, tokens)
    answers = net(padded(items, 9))
    for other in (net(padded(items, 14)), net(padded(items, 9, filling=3))):
        for one, same, item in zip(answers, other, items, strict=True):
            count = len(item) if task == "language" else None
            torch.testing.assert_close(one[:count], same[:count], rtol=0, atol=1e-6)
    for one, item in zip(answers, items, strict=True):
        alone = net((item[None], torch.tensor([len(item)])))[0]
        torch.testing.assert_close(one[: len(item)] if task == "language" else one, alone, rtol=0, atol=1e-6)
        torch.testing.assert_close(alone, net(item[None])[0], rtol=0, atol=1e-6)


def test_recurrent_answers_are_those_of_packed_sequences() -> None:
    items = sequences(tokens=False)
    net: Any = network(TABLES[1], "classification", 9, tokens=False)
    packed, (hidden, _) = net.layers(pack_sequence(items, enforce_sorted=False))
    expected = net.answer(torch.cat((hidden[-2], hidden[-1]), 1))
    assert torch.equal(net(padded(items, 9)), expected)
    assert pad_packed_sequence(packed, batch_first=True)[1].tolist() == LENGTH_OF


def test_gradients_ignore_padding() -> None:
    items = sequences(tokens=True)
    found = []
    for longest, filling in ((9, 0), (14, 5)):
        net = network(TABLES[3], "classification", 14, tokens=True)
        net(padded(items, longest, filling)).square().sum().backward()
        found.append([parameter.grad for parameter in net.parameters()])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)


def test_the_loss_of_tokens_ignores_padding() -> None:
    task = Language()
    task.padded = True
    draw = torch.Generator().manual_seed(2)
    answers, targets = torch.randn(2, 4, 5, generator=draw), torch.tensor([[1, 2, 3, 4], [0, PADDING, PADDING, PADDING]])
    own = [nn.functional.cross_entropy(one[targets[i] >= 0], targets[i][targets[i] >= 0]) for i, one in enumerate(answers)]
    torch.testing.assert_close(task.loss(answers, targets), torch.stack(own).mean())
    best = nn.functional.one_hot(targets.clamp(min=0), 5).float()
    assert task.correct(best, targets) == 2
    whole = torch.randint(5, (2, 4), generator=draw)
    plain = Language()
    torch.testing.assert_close(task.loss(answers, whole), plain.loss(answers, whole))
    assert task.correct(answers, whole) == pytest.approx(plain.correct(answers, whole))


def test_rows_become_the_inputs_of_a_batch() -> None:
    parts, width = lay_out_parts([("image", "uint8", (2, 2)), ("meta", "float32", (3,)), ("word", "int64", ())])
    rows = torch.zeros(5, width, dtype=torch.uint8)
    rows[:, :4] = torch.arange(5, dtype=torch.uint8)[:, None] * 51
    rows[:, 8:20] = torch.arange(15.0).view(5, 3).view(torch.uint8)
    rows[:, 24:32] = torch.arange(5)[:, None].view(torch.uint8)
    inputs = unpack(rows, parts, torch.float64)
    assert torch.allclose(inputs["image"][:, 0, 0], torch.arange(5, dtype=torch.float64) / 5)
    assert inputs["meta"].tolist() == torch.arange(15.0).view(5, 3).tolist()
    assert inputs["word"].tolist() == [0, 1, 2, 3, 4]
    assert [len(piece["meta"]) for piece in split(inputs, [2, 3])] == [2, 3]
    samples = Samples(rows, torch.arange(5), 1.0, parts=parts)
    samples.part(slice(0, 1))[0]["meta"].add_(1)
    assert samples.batch(torch.tensor([0]))[0]["meta"].tolist() == [[0, 1, 2]]
