"""The items of one worker's shard: their order by hand, positions, and what user code may do wrong."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest

from partrain.data.base import StreamForm
from partrain.data.user.packed import PackedItems
from partrain.data.user.shard import Batch, Shard, Source, first_items, form_of
from partrain.data.user.streamed import streamed
from partrain.data.user.work import Cursor
from partrain.errors import UserCodeFailed


class Numbers:
    """The numbers below ten, every `size`-th of them, one further in each pass: the input is the number, the target its double."""

    def stream(self, rank: int, size: int, seed: int, pass_number: int) -> Iterator[Any]:
        for number in range(10)[rank::size]:
            yield [float(number + 100 * pass_number + seed)], [2.0 * number]


class Skipping(Numbers):
    """The same, which can begin anywhere."""

    def stream(self, rank: int, size: int, seed: int, pass_number: int, skip: int = 0) -> Iterator[Any]:  # type: ignore[override]
        yield from islice(super().stream(rank, size, seed, pass_number), skip, None)


FORM = StreamForm(False, (), (("numbers", (1,)),), ("numbers", (1,)), None, (None,))


def shard(data: Any, rank: int = 0, size: int = 2, batch: int = 2, form: StreamForm = FORM, seed: int = 0) -> Shard:
    return Shard(Source(data, "own.py:Data"), form, rank, size, seed, batch)


def drawn(batches: Iterator[Batch], count: int) -> list[list[float]]:
    return [batch.inputs[:, 0].tolist() for batch in islice(batches, count)]


def refused(batches: Iterator[Batch], count: int = 20) -> str:
    with pytest.raises(UserCodeFailed) as caught:
        list(islice(batches, count))
    assert "\n" not in caught.value.message
    return caught.value.message


def test_two_workers_by_hand() -> None:
    """Full batches run on into the next pass."""
    assert drawn(shard(Numbers()).batches(Cursor()), 4) == [[0, 2], [4, 6], [8, 100], [102, 104]]
    assert drawn(shard(Numbers(), rank=1).batches(Cursor()), 4) == [[1, 3], [5, 7], [9, 101], [103, 105]]
    assert drawn(shard(Numbers(), rank=1, seed=1000).batches(Cursor()), 1) == [[1001, 1003]]


def test_the_last_batch_of_a_whole_pass_is_short() -> None:
    assert drawn(shard(Numbers()).batches(Cursor(), 5, whole_passes=True), 4) == [[0, 2], [4, 6], [8], [100, 102]]


@pytest.mark.parametrize("data", [Numbers(), Skipping()])
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_from_each_position_the_same_batches_follow(data: Any, whole: bool, rank: int) -> None:
    length = len(range(10)[rank::3])
    one = shard(data, rank, 3)
    batches = list(islice(one.batches(Cursor(), length, whole_passes=whole), 8))
    for number, batch in enumerate(batches[:-1], 1):
        again = list(islice(one.batches(batch.cursor, length, whole_passes=whole), len(batches) - number))
        assert [each.inputs.tolist() for each in again] == [each.inputs.tolist() for each in batches[number:]]
        assert [each.cursor for each in again] == [each.cursor for each in batches[number:]]


def test_a_position_is_pass_items_and_digest() -> None:
    cursors = [batch.cursor for batch in islice(shard(Numbers()).batches(Cursor()), 4)]
    assert [cursor[:2] for cursor in cursors] == [(0, 2), (0, 4), (1, 1), (1, 3)]
    assert len({cursor.digest for cursor in cursors}) == 4


def test_default_generators_are_seeded_before_each_pass() -> None:
    class Drawn(Numbers):
        def stream(self, rank: int, size: int, seed: int, pass_number: int) -> Iterator[Any]:
            while True:
                yield [np.random.rand()], [0.0]

    first = list(islice(shard(Drawn()).batches(Cursor()), 3))
    np.random.rand(7)
    assert drawn(shard(Drawn()).batches(first[0].cursor), 2) == [batch.inputs[:, 0].tolist() for batch in first[1:]]
    assert drawn(shard(Drawn(), rank=1).batches(Cursor()), 1) != drawn(shard(Drawn()).batches(Cursor()), 1)


def test_a_stream_that_does_not_repeat_is_found_out() -> None:
    class Changing(Numbers):
        calls = 0

        def stream(self, rank: int, size: int, seed: int, pass_number: int) -> Iterator[Any]:
            self.calls += 1
            for number in range(10):
                yield [float(number + 100 * self.calls * (number > 2))], [0.0]

    data = Changing()
    batches = list(islice(shard(data).batches(Cursor()), 2))
    message = refused(shard(data).batches(batches[1].cursor))
    assert "worker 0, pass 0: item 3 is not the one that was trained on before" in message
    with pytest.raises(UserCodeFailed, match="called again with the same arguments, gives another item 3 than before"):
        streamed(Source(Changing(), "own.py:Data"), 0)

    class Wrong(Numbers):
        def stream(self, rank: int, size: int, seed: int, pass_number: int, skip: int = 0) -> Iterator[Any]:  # type: ignore[override]
            yield from super().stream(rank, size, seed, pass_number)

    with pytest.raises(UserCodeFailed, match="called with skip = 1, gives another item 1 than before"):
        streamed(Source(Wrong(), "own.py:Data"), 0)


@pytest.mark.parametrize(("items", "length", "words"), [
    ("[]", None, "worker 0, pass 0: the stream gives no items: its shard is empty"),
    ("[([1.0], [2.0])]", None, "the stream ended after 1 items, before a batch of 2 was full: lower `batch_size`"),
    ("[([1.0], [2.0])] * 3", 4, "the stream ended after 3 items, and its `length` is 4"),
    ("[([1.0], [2.0])] * 5", 4, "the stream gives more items than its `length`, 4"),
    ("[([1.0], [2.0])] * 3 + [([1.0, 2.0], [2.0])]", None, "item 3: its input is numbers (2,), and item 0 has numbers (1,)"),
    ("[([1.0], [2.0]), ([float('nan')], [2.0])]", None, "item 1: its input holds a number that is not finite"),
    ("[([1.0], [2.0]), ([1.0], [2.0, 3.0])]", None, "item 1: its target is numbers (2,), and item 0 has numbers (1,)"),
    ("[([1.0], [2.0]), 7]", None, "item 1 is int: expected an input and a target"),
    ("(([1.0], [1 / (3 - n)]) for n in range(9))", None, "worker 0, pass 0: item 3: ZeroDivisionError: "),
    ("1 / 0", None, "worker 0, pass 0: ZeroDivisionError: "),
])  # fmt: skip
def test_faults_name_worker_pass_and_item(items: str, length: int | None, words: str) -> None:
    class Faulty:
        def stream(self, rank: int, size: int, seed: int, pass_number: int) -> Any:
            return eval(items)

    message = refused(shard(Faulty()).batches(Cursor(), length))
    assert message.startswith("[dataset] name: `own.py:Data`: worker 0, pass ")
    assert words in message


def labels(items: list[Any], **more: Any) -> Any:
    """A stream of these items, with more attributes."""
    return type("Labels", (), {"stream": lambda self, rank, size, seed, pass_number: iter(items), **more})()


class Unsharded(Numbers):
    """The same numbers for each worker."""

    def stream(self, rank: int, size: int, seed: int, pass_number: int) -> Iterator[Any]:
        yield from super().stream(0, 1, seed, pass_number)


class OneWorker(Numbers):
    """A stream that serves one worker only."""

    def stream(self, rank: int, size: int, seed: int, pass_number: int) -> Iterator[Any]:
        return super().stream(["only"].index(["only"][rank]), size, seed, pass_number)


@pytest.mark.parametrize(("data", "unsharded"), [(Numbers(), False), (Unsharded(), True), (OneWorker(), False)])
def test_a_stream_that_is_the_same_for_all_workers_is_noticed(data: Any, unsharded: bool) -> None:
    assert streamed(Source(data, "own.py:Data"), 0)[1]["unsharded"] == unsharded


def test_classes_and_vocabulary_are_declared() -> None:
    def form(data: Any) -> StreamForm:
        source = Source(data, "own.py:Data")
        return form_of(source, PackedItems.of(first_items(source, 4), "`own.py:Data`"))

    assert form(labels([([1.0], 3)], classes=5)).classes == 5
    assert form(labels([([1, 2], 3)], classes=5, vocabulary=9)).vocabulary == (9,)
    assert form(labels([([1, 2], [2, 3])], vocabulary=9)).classes == 9
    assert form(labels([({"a": [1, 2], "b": [0.5]}, 0)], classes=2, vocabulary={"a": 4})).vocabulary == (4, None)
    with pytest.raises(UserCodeFailed, match="its targets are labels, which a stream cannot count: set the attribute `classes`"):
        form(labels([([1.0], 3)]))
    with pytest.raises(UserCodeFailed, match="set the attribute `vocabulary` to the number of tokens, and it is 1"):
        form(labels([([1, 2], 3)], classes=5, vocabulary=1))


def test_a_label_or_token_beyond_them_is_named() -> None:
    form = StreamForm(False, (), (("tokens", (2,)),), ("label", ()), 3, (9,))
    message = refused(shard(labels([([1, 2], 0), ([1, 2], 3)], classes=3), form=form).batches(Cursor()))
    assert "item 1: its target holds 3, and `classes` is 3" in message
    message = refused(shard(labels([([1, 2], 0), ([1, 9], 1)], classes=3), form=form).batches(Cursor()))
    assert "item 1: its input holds 9, and `vocabulary` is 9" in message


def test_the_method_is_called_by_its_arguments() -> None:
    class Short:
        def stream(self, rank: int, size: int) -> Any: ...

    with pytest.raises(UserCodeFailed, match=r"`stream` takes rank, size, and is called as stream\(rank=\.\.\., size="):
        Source(Short(), "own.py:Data")


@pytest.mark.parametrize(("attribute", "words"), [
    ({}, "a stream gives them as attribute `validation`, which there is not: add it, or set validation = 0"),
    ({"validation": [([1.0], [1.0])] * 2}, "its `validation` has 2 items, fewer than `validation` = 3"),
    ({"validation": [([1.0, 2.0], [1.0])] * 3}, "its inputs are numbers (2,), those to train on numbers (1,)"),
    ({"validation": 7}, "`validation` is of type int: expected items"),
    ({"validation": [([1.0], [1.0])] * 3, "test": [([1.0], 1)]}, "its targets are label (), those to train on numbers (1,)"),
])  # fmt: skip
def test_held_out_items_are_those_of_an_attribute(attribute: dict[str, Any], words: str) -> None:
    with pytest.raises(UserCodeFailed) as caught:
        streamed(Source(labels([([1.0], [2.0])], **attribute), "own.py:Data"), 3)
    assert words in caught.value.message


@pytest.mark.parametrize("kind", ["list", "function", "generator", "arrays"])
def test_held_out_items_come_in_any_form(kind: str) -> None:
    items = [([float(n)], [1.0]) for n in range(5)]
    arrays = type("Arrays", (), {"inputs": np.arange(5.0)[:, None], "targets": np.ones((5, 1))})()
    given: dict[str, Any] = {
        "list": items,
        "function": lambda self: items,
        "generator": lambda self: (one for one in items),
        "arrays": arrays,
    }
    parts, _ = streamed(Source(labels([([1.0], [2.0])], validation=given[kind], test=given[kind]), "own.py:Data"), 3)
    assert [rows.tolist() for rows, _ in parts[""].blocks()] == [[[0.0], [1.0], [2.0]]]
    assert parts["test_"].count == 5
