"""Long runs in few numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partrain.report.figures import thinned
from partrain.report.history import WorkerSpan
from partrain.report.timeline import binned


def test_bins_hold_what_happened_in_them() -> None:
    one, two = binned([WorkerSpan(end=2.0, compute=1.0, wait=0.75, mix=0.25, items=8)], 2.0, 2)
    assert (one.compute, one.wait, one.mix, one.items) == (1.0, 0.0, 0.0, 4)
    assert (two.compute, two.wait, two.mix, two.items) == (0.0, 0.75, 0.25, 4)


@given(st.lists(st.tuples(*[st.floats(0, 10)] * 3), max_size=20), st.integers(1, 50))
def test_bins_lose_no_time(parts: list[tuple[float, float, float]], count: int) -> None:
    spans, end = [], 0.0
    for compute, wait, mix in parts:
        end += compute + wait + mix
        spans.append(WorkerSpan(end, compute, wait, mix, 1))
    if not end:
        return
    bins = binned(spans, end, count)
    for index, name in enumerate(("compute", "wait", "mix")):
        assert sum(getattr(one, name) for one in bins) == pytest.approx(sum(part[index] for part in parts), abs=1e-6)


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(-1e6, 1e6)), max_size=200), st.integers(1, 50))
def test_thinned_points_are_few_and_keep_the_end(points: list[tuple[float, float]], most: int) -> None:
    found = list(thinned(points, most))
    assert len(found) <= most
    assert [x for x, _ in found][-1:] == [x for x, _ in points][-1:]
