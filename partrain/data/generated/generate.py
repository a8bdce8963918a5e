"""Generated items, for demonstrations and tests: curves to fit, classes to separate, waves to continue.

The purpose of each draw (function, features, classes; training or test) seeds it, never the job's seed: all seeds of a
benchmark see the same data. The number of items does not affect the draws: a larger random set begins with the smaller one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from partrain.data.base import Allocate, Dataset, DatasetInfo, Training, fingerprint_of, lay_out, views
from partrain.data.generated.section import Synthetic, read_spec
from partrain.seeds import generator

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Pair = tuple[NDArray[Any], NDArray[Any]]
    """inputs (n, *shape) and targets, (n,) int64 or (n, outputs), in double precision."""


def load(section: Synthetic, folder: Path, allocate: Allocate, training: Training) -> Dataset:
    """Generate the training items, and fresh draws as test items; see `data.load`."""
    spec = read_spec(section, folder)
    assert spec.outputs is not None
    stored = ("int64", ()) if spec.kind.one_class else ("float32", (spec.outputs,))
    slots = lay_out(
        {
            f"{prefix}{role}": (dtype, (items, *shape))
            for prefix, items in (("", spec.items), ("test_", spec.test_items))
            for role, (dtype, shape) in (("inputs", ("float32", spec.shape)), ("targets", stored))
            if items
        }
    )
    buffer = allocate(slots[-1].end)
    arrays = views(slots, buffer)
    for prefix in ("", "test_") if spec.test_items else ("",):
        arrays[f"{prefix}inputs"][:], arrays[f"{prefix}targets"][:] = _draw(
            section, f"{prefix}items", len(arrays[f"{prefix}inputs"])
        )
    return DatasetInfo(slots, spec.task, spec.outputs, 1.0, fingerprint_of(slots, buffer)).open(buffer)


def _draw(section: Synthetic, use: str, n: int) -> Pair:
    return _FUNCTIONS[section.function](section, use, n)


def _generator(section: Synthetic, use: str, what: str) -> np.random.Generator:
    """Return the random stream of one quantity. More items continue the same draws."""
    return generator(0, "synthetic", section.function, section.features, section.classes, use, what)


def _sine(section: Synthetic, use: str, n: int) -> Pair:
    """Draw y = sin(x) + noise, x uniform in [-pi, pi]."""
    x = _generator(section, use, "x").uniform(-np.pi, np.pi, (n, 1))
    return x, np.sin(x) + section.noise * _generator(section, use, "noise").standard_normal((n, 1))


def _seeds(section: Synthetic, use: str, n: int) -> Pair:
    """Compute the curve used to measure the parallel trainer for brain.js. x increases, so `order = "given"` matters.

    x_i = (240/n) i, which for its 5,000 points is 0.048 i; input (x + 120) / 240; target sin(x/3) + cos(x/2) / 2, in degrees.
    """
    x = (240 / n) * np.arange(n)[:, None] if use == "items" else _generator(section, use, "x").uniform(0, 240, (n, 1))
    return (x + 120) / 240, np.sin(np.deg2rad(x / 3)) + 0.5 * np.cos(np.deg2rad(x / 2))


def _blobs(section: Synthetic, use: str, n: int) -> Pair:
    """Draw Gaussian classes around standard normal centers; all classes are equally likely."""
    centers = _generator(section, "classes", "centers").standard_normal((section.classes, section.features))
    labels = _generator(section, use, "labels").integers(0, section.classes, n)
    noise = _generator(section, use, "noise").standard_normal((n, section.features))
    return centers[labels] + section.noise * noise, labels


def _xor(section: Synthetic, use: str, n: int) -> Pair:
    """Draw two bits with noise; the class is their exclusive or."""
    bits = _generator(section, use, "bits").integers(0, 2, (n, 2))
    return bits + section.noise * _generator(section, use, "noise").standard_normal((n, 2)), bits[:, 0] ^ bits[:, 1]


def _spirals(section: Synthetic, use: str, n: int) -> Pair:
    """Draw arms of a spiral, one for each class, three quarters of a turn from radius 0.1 to 1."""
    arm = _generator(section, use, "labels").integers(0, section.classes, n)
    along = _generator(section, use, "along").uniform(0, 1, n)
    angle = 2 * np.pi * (arm / section.classes + 0.75 * along)
    points = (0.1 + 0.9 * along)[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1)
    return points + 0.2 * section.noise * _generator(section, use, "noise").standard_normal((n, 2)), arm


def _moons(section: Synthetic, use: str, n: int) -> Pair:
    """Draw two half circles, one reaching into the other."""
    lower = _generator(section, use, "labels").integers(0, 2, n)
    angle = _generator(section, use, "along").uniform(0, np.pi, n)
    points = np.stack([np.cos(angle), np.sin(angle)], 1)
    points = np.where(lower[:, None] == 1, [1, 0.5] - points, points)
    return points + section.noise * _generator(section, use, "noise").standard_normal((n, 2)), lower


def _checkerboard(section: Synthetic, use: str, n: int) -> Pair:
    """Draw points on [-1, 1] in both directions; the class is the color of the square on a 4 by 4 board."""
    points = _generator(section, use, "x").uniform(-1, 1, (n, 2))
    return points, np.floor(2 * (points + 1)).astype("int64").sum(1) % 2


def _waves(section: Synthetic, use: str, n: int) -> Pair:
    """Draw sine waves of 8 to 40 numbers a period, of any phase, with noise on inputs and targets."""
    draw = _generator(section, use, "wave")
    period, phase = draw.uniform([8, 0], [40, 2 * np.pi], (n, 2)).T
    moments = np.arange(section.window + section.steps)
    wave = np.sin(2 * np.pi * moments / period[:, None] + phase[:, None])
    wave += section.noise * _generator(section, use, "noise").standard_normal(wave.shape)
    return wave[:, : section.window, None], wave[:, section.window :]


_SIGNALS = """
    5 6 6.5 6.75 7 7 7 7 6.75 6.5 6 5
    5 3 3 3.4 3.8 4.2 4.6 5 5.4 5.8 5 5
    5 6 6.5 6.5 6 5.25 4.75 4 3.5 3.5 4 5
    5 6 6.5 6.5 6 5 5 6 6.5 6.5 6 5
    5 4.4 3.8 3.2 2.6 2.6 5 5 5 5 5 5
    5 3 3 3 3 5 6 6.5 6.5 6 4.5 5
    5 4 3.5 3.25 3 3 3 3 3.25 3.5 4 5
    5 7 7 6.6 6.2 5.8 5.4 5 4.6 4.2 5 5
    5 4 3.5 3.5 4 5 5 4 3.5 3.5 4 5
    5 4 3.5 3.5 4 5 5 5 5 4.7 4.3 5
"""
"""The digits 0 to 9 as MNIST-1D draws them, from left to right."""


def _mnist_1d(section: Synthetic, use: str, n: int) -> Pair:
    """Draw ten signals of 12 numbers, each padded, scaled, sheared, moved along a circle and made noisy, seen as 40 numbers.

    After S. Greydanus, D. Kobak. Scaling down deep learning with MNIST-1D. 2020. arXiv:2011.14439; with different draws.
    """
    signals = np.array(_SIGNALS.split(), float).reshape(10, 12)
    signals -= signals.mean(1, keepdims=True)
    signals /= signals.std(1, keepdims=True)
    signals = (signals - signals[:, :1]) / 6
    labels = _generator(section, use, "labels").integers(0, 10, n)
    form = _generator(section, use, "form").uniform([36, 0.8, -0.375, 0], [61, 1.2, 0.375, 48], (n, 4)).T[:, :, None]
    padding, size, shear, shift = np.floor(form[0]), form[1], form[2], np.floor(form[3]).astype("int64")
    # Stretch the signal and its padding to 72 places. Behind number 11 of the signal there is only padding.
    at = np.linspace(0, 1, 72) * (11 + padding)
    left = np.minimum(at.astype("int64"), 11)
    share = np.minimum(at - left, 1)
    padded = np.concatenate([signals, np.zeros((10, 1))], 1)[labels]
    seen = size * ((1 - share) * np.take_along_axis(padded, left, 1) + share * np.take_along_axis(padded, left + 1, 1))
    rough = _generator(section, use, "smooth noise").standard_normal((n, 88))
    kernel = np.exp(-0.5 * (np.arange(-8, 9) / 2) ** 2)
    smooth = np.lib.stride_tricks.sliding_window_view(rough, 17, axis=1) @ (kernel / kernel.sum())
    circle = (np.arange(72) - shift) % 72
    seen = np.where(np.take_along_axis(at, circle, 1) < 12, np.take_along_axis(seen, circle, 1), 0.25 * smooth)
    seen += 0.02 * _generator(section, use, "noise").standard_normal((n, 72)) - shear * np.linspace(-0.5, 0.5, 72)
    grid = np.linspace(0, 71, 40)
    before = np.minimum(grid.astype("int64"), 70)
    return seen[:, before] + (grid - before) * (seen[:, before + 1] - seen[:, before]), labels


_FUNCTIONS: dict[str, Callable[[Synthetic, str, int], Pair]] = {
    "sine": _sine,
    "seeds": _seeds,
    "blobs": _blobs,
    "xor": _xor,
    "spirals": _spirals,
    "moons": _moons,
    "checkerboard": _checkerboard,
    "waves": _waves,
    "mnist-1d": _mnist_1d,
}
