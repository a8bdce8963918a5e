"""Datasets of HDF5 as their types and attributes describe them: packed and missing values (netCDF), axes (MATLAB, Octave)."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from partrain.data.base import first_bad
from partrain.errors import InputMissing

if TYPE_CHECKING:
    from numpy.typing import NDArray


class DescribedDataset:
    """The values of a numeric dataset, read by slices of items."""

    def __init__(self, dataset: Any, where: str) -> None:
        """Read the attributes of a dataset. `where`: its file and name, for messages."""
        import numpy as np

        self._dataset, self._where, attributes = dataset, where, dataset.attrs
        self.nbytes = dataset.nbytes
        matlab = _text(attributes, "MATLAB_class")
        self._by_columns = bool(matlab) or "OCTAVE_NEW_FORMAT" in dataset.parent.attrs
        self.shape: tuple[int, ...] = dataset.shape[::-1] if self._by_columns else dataset.shape
        """Axes in the order of the program that wrote them: MATLAB and Octave store them in reverse."""
        self.unsupported = (
            "texts of MATLAB" if matlab == "char" else "nothing: an empty array of MATLAB" if "MATLAB_empty" in attributes else ""
        )
        """Content that is not an array of numbers, in words; empty otherwise."""
        stored = dataset.dtype
        self._unsigned = stored.kind == "i" and _text(attributes, "_Unsigned").lower() == "true"
        scale, shift = (_numbers(attributes, name) for name in ("scale_factor", "add_offset"))
        self._scale, self._shift = (scale[0] if len(scale) else 1.0), (shift[0] if len(shift) else 0.0)
        self._packed = (self._scale, self._shift) != (1, 0)
        missing = {name: _numbers(attributes, name) for name in ("_FillValue", "missing_value")}
        properties = dataset.id.get_create_plist()
        if "_NCProperties" in dataset.file.attrs and properties.fill_value_defined() == 2:  # by the user
            missing["fill value"] = np.ravel(dataset.fillvalue)
        wide = self._packed or stored.itemsize > 1  # 255 in bytes may mark pixels that do not count
        with np.errstate(all="ignore"):
            self._missing = {name: values.astype(stored) for name, values in missing.items() if wide and (values == values).any()}
        dtype = np.dtype(f"u{stored.itemsize}") if self._unsigned else stored
        self.dtype = np.dtype("bool" if matlab == "logical" else "f8" if self._packed else dtype)

    @property
    def offset(self) -> int | None:
        """Bytes from the file's beginning to the numbers; None unless they are stored unchanged, in the processor's order."""
        import h5py

        dataset = self._dataset
        plain = self.dtype == dataset.dtype and not (self._missing or (self._by_columns and len(self.shape) > 1))
        same = plain and dataset.id.get_type() == h5py.h5t.py_create(dataset.dtype, logical=True)  # not so for bfloat16
        return dataset.id.get_offset() if same and dataset.dtype.isnative and dataset.chunks is None else None

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, items: slice) -> NDArray[Any]:
        """Read some items. InputMissing if a value is missing."""
        import numpy as np

        stored: NDArray[Any] = self._dataset[..., items].T if self._by_columns else self._dataset[items]
        for name, values in self._missing.items():
            if (empty := np.isin(stored, values)).any():
                item, at = first_bad(empty)
                what = f"has no value{at}: the dataset's `{name}` {stored[empty][0]:.6g} stands there"
                raise InputMissing(f"{self._where}: item {items.start + item} {what}; fill it in, or leave the item out")
        if self._unsigned:
            stored = stored.view(f"{stored.dtype.byteorder}u{stored.itemsize}")
        return stored * self._scale + self._shift if self._packed else stored.astype(self.dtype, copy=False)


def unwritten(dataset: Any) -> str:
    """Describe the parts of a dataset that were never written, where HDF5 would silently return a fill value; empty if none."""
    if dataset.is_virtual or not prod(dataset.shape):
        return ""
    if not dataset.id.get_storage_size():
        return "a shape and no numbers: nothing was ever written to it"
    chunks = prod(-(-size // step) for size, step in zip(dataset.shape, dataset.chunks, strict=True)) if dataset.chunks else 0
    lost = chunks and chunks - dataset.id.get_num_chunks()
    return f"numbers in {chunks:,} chunks, of which {lost:,} were never written" if lost else ""


def _text(attributes: Any, name: str) -> str:
    """Return a text attribute; empty if it is missing."""
    value = attributes.get(name, "")
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _numbers(attributes: Any, name: str) -> NDArray[Any]:
    """Return the numbers of an attribute; empty if it is missing or not numeric."""
    import numpy as np

    values = np.ravel(attributes.get(name, ()))
    return values if values.dtype.kind in "biuf" else np.empty(0)
