"""The arena: all processes read what one writes, and no process writes into the memory of another."""

import mmap
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from partrain.comm import futex
from partrain.comm.arena import RING, SCORES, SLICES, SLOTS, Arena, grow
from partrain.record.round_record import FIELDS

TIMEOUT_S = 60.0
"""Duration of a test that fails. A test that passes does not wait."""


@pytest.fixture
def arena() -> Iterator[Arena]:
    made = Arena.create(3)
    yield made
    os.close(made.descriptor)


def again(arena: Arena) -> Arena:
    """Map the same arena as another process does."""
    return Arena(arena.descriptor, arena.size)


def test_the_parts_of_the_board_do_not_overlap(arena: Arena) -> None:
    parts = [arena.words, arena.meetings, arena.arrivals, arena.beats, arena.trained, arena.delays, arena.weights]
    parts += [arena.scores, arena.visits, arena.shares, arena.versions, arena.claims, arena.numbers, arena.ring]
    shapes = [(6,), (8,), *[(3,)] * 4, (3, 2), (2, 3, SCORES), *[(3,)] * 2, (SLICES,), (8,), (SLICES, 8)]
    shapes += [(RING, 3, len(FIELDS))]
    assert [part.shape for part in parts] == shapes
    for number, part in enumerate(parts, start=1):
        part[...] = number
    assert [set(part.flatten().tolist()) for part in parts] == [{number} for number in range(1, 15)]


def test_one_mapping_reads_what_the_other_writes(arena: Arena) -> None:
    other = again(arena)
    arena.put("committed", 2**40)
    arena.scores[1, 2] = 0.5
    arena.ring[RING - 1, 2] = np.arange(len(FIELDS))
    assert other.get("committed") == 2**40
    assert other.scores[1, 2].tolist() == [0.5] * 8
    assert other.ring[RING - 1, 2].tolist() == list(range(len(FIELDS)))


def test_words_begin_at_zero(arena: Arena) -> None:
    assert [arena.get(word) for word in ("command", "wanted", "granted", "committed", "drained", "restored")] == [0] * 6


def test_numbers_that_processes_spin_on_are_a_cache_line_apart(arena: Arena) -> None:
    assert {part.strides[0] for part in (arena.words, arena.arrivals, arena.beats, arena.weights)} == {64}


def test_the_address_of_a_meeting_is_that_of_its_counter(arena: Arena) -> None:
    assert arena.meeting_address == arena.meetings.__array_interface__["data"][0]


def test_rows_commons_and_slots_are_shared_and_do_not_overlap(arena: Arena) -> None:
    def parts(arena: Arena) -> list[memoryview]:
        rows, commons, end = arena.map_rows(5000, 700)
        return [*(row.data for row in rows), commons, *arena.map_slots(end, 100)]

    for number, part in enumerate(parts(arena)):
        part[:] = bytes([number]) * len(part)
    assert [(len(part), set(part)) for part in parts(again(arena))] == [
        *((5000, {rank}) for rank in range(3)),
        (700, {3}),
        *((100, {4 + slot}) for slot in range(SLOTS)),
    ]


def test_rows_do_not_overlap_the_board(arena: Arena) -> None:
    arena.put("drained", 7)
    rows, _, _ = arena.map_rows(mmap.PAGESIZE)
    rows[0] = 255
    assert arena.get("drained") == 7
    assert not arena.ring.any()


def test_a_file_grows_and_never_shrinks(arena: Arena) -> None:
    size = os.fstat(arena.descriptor).st_size
    grow(arena.descriptor, size // 2)
    assert os.fstat(arena.descriptor).st_size == size
    grow(arena.descriptor, 2 * size)
    assert os.fstat(arena.descriptor).st_size == 2 * size


def test_the_arena_has_no_file_in_a_file_system(arena: Arena) -> None:
    assert Path(f"/proc/self/fd/{arena.descriptor}").readlink().name.startswith("memfd:partrain")


def test_a_changed_word_wakes_its_sleepers(arena: Arena) -> None:
    woken = threading.Event()

    def sleeper() -> None:
        while arena.get("granted") == 0:
            arena.sleep("granted", 0, TIMEOUT_S)
        woken.set()

    thread = threading.Thread(target=sleeper)
    thread.start()
    again(arena).put("granted", 1)
    assert woken.wait(TIMEOUT_S)
    thread.join()


def test_a_word_that_has_changed_ends_the_sleep_at_once(arena: Arena) -> None:
    arena.put("granted", 2)
    arena.sleep("granted", 1, TIMEOUT_S)


def test_a_sleep_ends_at_its_timeout(arena: Arena) -> None:
    arena.sleep("granted", 0, 0.001)


def test_a_sleep_compares_the_low_32_bits_of_a_word(arena: Arena) -> None:
    arena.put("committed", 2**32 + 5)
    arena.sleep("committed", 2**32 + 4, TIMEOUT_S)
    futex.wake(arena.meeting_address)
