"""Values of a script as arrays."""

from __future__ import annotations

import numpy as np
import pytest

from partrain.data.python.convert import to_array
from partrain.errors import InputMissing


def test_masked_values_are_refused() -> None:
    """numpy would take the numbers beneath the mask."""
    values = np.ma.masked_array([1.0, -9999.0], mask=[False, True])
    with pytest.raises(InputMissing, match="X: holds masked values"):
        to_array(values, "X")
    assert to_array(values.filled(0), "X").tolist() == to_array(np.ma.masked_array([1.0, 0.0]), "X").tolist() == [1, 0]
