"""Generated classes, waves and signals: their values, which repeat for equal settings, and fresh test items."""

import numpy as np
import pytest
from pydantic import ValidationError
from support.generated import HERE, generate

from partrain.data import read_spec
from partrain.data.generated.section import Synthetic

NEW = ["spirals", "moons", "checkerboard", "waves", "mnist-1d"]


@pytest.mark.parametrize("function", NEW)
def test_more_items_begin_with_the_fewer_and_test_items_are_fresh(function: str) -> None:
    data, other = generate(function, items=500, test_items=50), generate(function, items=499, test_items=50)
    assert np.array_equal(data.inputs[:499], other.inputs)
    assert np.array_equal(data.targets[:499], other.targets)
    assert data.test_inputs is not None
    distances = [abs(data.inputs - test).reshape(500, -1).max(1).min() for test in data.test_inputs]
    assert min(distances) > 0
    assert (
        read_spec(Synthetic.model_validate({"kind": "synthetic", "function": function, "items": 500, "test_items": 50}), HERE)
        == data.spec
    )


@pytest.mark.parametrize("function", ["moons", "checkerboard", "spirals", "mnist-1d"])
def test_a_point_is_of_the_class_of_its_neighbours(function: str) -> None:
    """A classifier can separate the classes, but not by their means alone."""
    data = generate(function, items=4000, test_items=500)
    assert data.test_inputs is not None
    distances = (data.test_inputs**2).sum(1)[:, None] - 2 * data.test_inputs @ data.inputs.T + (data.inputs**2).sum(1)
    nearest = data.targets[distances.argmin(1)]
    assert (nearest == data.test_targets).mean() > (0.4 if function == "mnist-1d" else 0.95)
    assert set(data.targets.tolist()) == set(range(data.outputs))


def test_spirals_have_as_many_arms_as_classes() -> None:
    data = generate("spirals", classes=5, noise=0.0, items=2000)
    radius = np.hypot(*data.inputs.T)
    turn = np.arctan2(*data.inputs.T[::-1]) / (2 * np.pi) - 0.75 * (radius - 0.1) / 0.9
    assert np.allclose((turn - data.targets / 5 + 0.5) % 1, 0.5, atol=1e-4)


def test_waves_go_on_as_they_began() -> None:
    """The next two numbers of a sine wave follow from the two before and the period: x[t+1] = 2 cos(w) x[t] - x[t-1]."""
    data = generate("waves", window=10, steps=2, noise=0.0, items=200)
    assert (data.task, data.inputs.shape, data.targets.shape) == ("forecast", (200, 10, 1), (200, 2))
    whole = np.concatenate([data.inputs[:, :, 0], data.targets], 1).astype(float)
    best = abs(whole[:, 1:-1]).argmax(1) + 1
    rows = np.arange(200)
    cosine = (whole[rows, best + 1] + whole[rows, best - 1]) / (2 * whole[rows, best])
    assert np.allclose(whole[:, 11], 2 * cosine * whole[:, 10] - whole[:, 9], atol=1e-4)
    assert (np.cos(2 * np.pi / 8) - 1e-5 <= cosine).all()
    assert (cosine <= np.cos(2 * np.pi / 40) + 1e-5).all()


@pytest.mark.parametrize(
    ("function", "key"), [("moons", "classes"), ("checkerboard", "noise"), ("xor", "window"), ("waves", "classes")]
)
def test_settings_without_effect(function: str, key: str) -> None:
    with pytest.raises(ValidationError, match=f'{key} would have no effect: function = "{function}"'):
        generate(function, **{key: 3})
