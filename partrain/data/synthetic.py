"""Generated items, for demonstrations and tests: two curves to fit, two kinds of classes to tell apart.

Every draw is seeded by what it is for (function, features, classes; training or test), never by the job's seed: the seeds of a
benchmark are to see the same data. Nor does the number of items enter: a larger random set begins with the smaller one.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from partrain.data import Allocate, Card, Dataset, Synthetic, facts, lay_out, views
from partrain.seeds import generator

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Pair = tuple[NDArray[Any], NDArray[Any]]
    """inputs (n, features) and targets, (n,) int64 or (n, 1), in double precision."""


def load(section: Synthetic, allocate: Allocate) -> Dataset:
    """Generate the training items, and fresh draws as test items, in one buffer."""
    known = facts(section, Path())
    assert known.outputs is not None
    stored = ("int64", ()) if known.task == "classification" else ("float32", (1,))
    slots = lay_out(
        {
            f"{prefix}{role}": (dtype, (items, *shape))
            for prefix, items in (("", known.items), ("test_", known.test_items))
            for role, (dtype, shape) in (("inputs", ("float32", known.shape)), ("targets", stored))
            if items
        }
    )
    buffer = allocate(slots[-1].end)
    arrays = views(slots, buffer)
    for prefix in ("", "test_") if known.test_items else ("",):
        arrays[f"{prefix}inputs"][:], arrays[f"{prefix}targets"][:] = _draw(
            section, f"{prefix}items", len(arrays[f"{prefix}inputs"])
        )
    digest = hashlib.sha256()
    for slot in slots:
        digest.update(repr(slot).encode())
        digest.update(buffer[slot.offset : slot.end])
    return Card(slots, known.task, known.outputs, 1.0, digest.hexdigest()).attach(buffer)


def _draw(section: Synthetic, use: str, n: int) -> Pair:
    function = {"sine": _sine, "seeds": _seeds, "blobs": _blobs, "xor": _xor}[section.function]
    return function(section, use, n)


def _generator(section: Synthetic, use: str, what: str) -> np.random.Generator:
    """One stream per quantity, so that more items continue the same draws."""
    return generator(0, "synthetic", section.function, section.features, section.classes, use, what)


def _sine(section: Synthetic, use: str, n: int) -> Pair:
    """y = sin(x) + noise, x uniform in [-pi, pi]."""
    x = _generator(section, use, "x").uniform(-np.pi, np.pi, (n, 1))
    return x, np.sin(x) + section.noise * _generator(section, use, "noise").standard_normal((n, 1))


def _seeds(section: Synthetic, use: str, n: int) -> Pair:
    """The curve on which the parallel trainer for brain.js was measured, in its order: increasing x, so `order = "given"` tells.

    x_i = (240/n) i, which for its 5,000 points is 0.048 i; input (x + 120) / 240; target sin(x/3) + cos(x/2) / 2, in degrees.
    """
    x = (240 / n) * np.arange(n)[:, None] if use == "items" else _generator(section, use, "x").uniform(0, 240, (n, 1))
    return (x + 120) / 240, np.sin(np.deg2rad(x / 3)) + 0.5 * np.cos(np.deg2rad(x / 2))


def _blobs(section: Synthetic, use: str, n: int) -> Pair:
    """Gaussian classes around centers that are standard normal themselves; all classes equally likely."""
    centers = _generator(section, "classes", "centers").standard_normal((section.classes, section.features))
    labels = _generator(section, use, "labels").integers(0, section.classes, n)
    noise = _generator(section, use, "noise").standard_normal((n, section.features))
    return centers[labels] + section.noise * noise, labels


def _xor(section: Synthetic, use: str, n: int) -> Pair:
    """Two bits with noise; the class is whether they differ."""
    bits = _generator(section, use, "bits").integers(0, 2, (n, 2))
    return bits + section.noise * _generator(section, use, "noise").standard_normal((n, 2)), bits[:, 0] ^ bits[:, 1]
