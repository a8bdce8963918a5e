"""Encoding of a checkpoint. HDF5 builds its image in memory and never touches a real file.

Equal contents give equal bytes: paths are sorted, the file version is fixed, and no times are stored. Every dataset is contiguous,
little-endian and unfiltered, so the numbers have the same bytes in the file as in memory.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from h5py import h5a, h5d, h5f, h5g, h5p, h5s, h5t
from numpy.typing import NDArray

from partrain.checkpoint.content import (
    ALIGNED_FROM,
    ALIGNMENT,
    DATASETS,
    DTYPES,
    JOB,
    MANIFEST,
    Content,
    ContentRefused,
    check,
    check_history,
    groups_of,
    manifest_text,
    parse_manifest,
    viewer_attributes,
)
from partrain.checkpoint.header import SIZE, Header

NUMBERS: dict[str, h5t.TypeID] = {name: h5t.py_create(np.dtype(name).newbyteorder("<")) for name in DTYPES if name != "bool"}
"""HDF5's type of each number type, little-endian on every machine."""
INCREMENT = 1 << 20
"""Bytes by which the image grows in memory; the file does not depend on it."""

_file_names = (f"image-{number}".encode() for number in itertools.count())  # HDF5 refuses two open files of one name


def encode(content: Content) -> bytes:
    """Encode the whole file: header and HDF5 image.

    Raises ValueError for a content that the reader would refuse: bad paths, types outside `DTYPES`, a manifest that is not JSON.
    """
    arrays = {path: _plain(path, array) for path, array in sorted(content.arrays.items())}
    try:
        check(content.manifest, arrays)
        if "history/round" in arrays:
            check_history(arrays["history/round"], content.round)
        payload, place = _build(content, {**arrays, JOB: _text(content.job)})
    except ContentRefused as error:
        raise ValueError(str(error)) from None
    return Header.of(payload, place, content.run, content.round).render() + payload


def _plain(path: str, array: NDArray[Any]) -> NDArray[Any]:
    """Return the array as the file stores it: little-endian, C order, booleans as bytes. No copy if it already is."""
    array = np.asarray(array)
    if array.dtype.name not in DTYPES:
        raise ValueError(f"{path!r} is {array.dtype}: a checkpoint holds {', '.join(DTYPES)}")
    plain = np.asarray(array, array.dtype.newbyteorder("<"), order="C")
    return plain.view(np.uint8) if plain.dtype == np.bool_ else plain


def _text(text: str) -> NDArray[Any]:
    """Encode text as one fixed-length string (). HDF5 has no empty string, so the empty text becomes one zero byte."""
    data = text.encode()
    if b"\0" in data:
        raise ValueError("a text with a NUL byte cannot be stored")
    return np.array(data, f"S{max(1, len(data))}")


def _build(content: Content, datasets: Mapping[str, NDArray[Any]]) -> tuple[bytes, tuple[int, int]]:
    """Build the HDF5 image, without its user block. Return it with the place of the manifest in the file: first byte, bytes.

    The manifest comes last because it has the places of all other datasets.
    """
    file = h5f.create(next(_file_names), h5f.ACC_TRUNC, _creation(), _in_memory())
    try:
        groups = _create_groups(file, datasets)
        creation = _dataset_creation()
        names = _utf8_names()

        def create(path: str, array: NDArray[Any]) -> int:
            parent, _, name = path.rpartition("/")
            return _create_dataset(groups[parent], name, array, creation, names)

        offsets = {path: create(path, array) for path, array in datasets.items()}
        manifest = _text(manifest_text(_with_datasets(content, datasets, offsets)))
        parse_manifest(manifest.tobytes())
        place = create(MANIFEST, manifest), manifest.itemsize
        for path, attributes in viewer_attributes(datasets).items():
            for name, value in attributes.items():
                _create_attribute(groups[path], name, value)
        h5f.flush(file)
        return file.get_file_image(), place
    finally:
        file.close()


def _with_datasets(content: Content, datasets: Mapping[str, NDArray[Any]], offsets: Mapping[str, int]) -> dict[str, Any]:
    """Add to the manifest a list of all datasets except the manifest itself."""
    if DATASETS in content.manifest:
        raise ValueError(f"the manifest's key `{DATASETS}` is reserved")
    kinds = {path: np.asarray(array).dtype.name for path, array in content.arrays.items()}
    listed = {
        path: {
            "dtype": kinds.get(path, f"S{array.itemsize}"),
            "shape": list(array.shape),
            "offset": offsets[path],
            "sha256": hashlib.sha256(array.data).hexdigest(),
        }
        for path, array in datasets.items()
    }
    return {**content.manifest, DATASETS: listed}


def _creation() -> h5p.PropFCID:
    creation = h5p.create(h5p.FILE_CREATE)
    creation.set_userblock(SIZE)
    creation.set_obj_track_times(False)
    return creation


def _in_memory() -> h5p.PropFAID:
    access = h5p.create(h5p.FILE_ACCESS)
    access.set_fapl_core(INCREMENT, backing_store=False)
    access.set_libver_bounds(h5f.LIBVER_V18, h5f.LIBVER_V18)
    access.set_fclose_degree(h5f.CLOSE_STRONG)
    access.set_alignment(ALIGNED_FROM, ALIGNMENT)
    return access


def _dataset_creation() -> h5p.PropDCID:
    creation = h5p.create(h5p.DATASET_CREATE)
    creation.set_layout(h5d.CONTIGUOUS)
    creation.set_obj_track_times(False)
    creation.set_alloc_time(h5d.ALLOC_TIME_EARLY)
    creation.set_fill_time(h5d.FILL_TIME_NEVER)
    return creation


def _utf8_names() -> h5p.PropLCID:
    names = h5p.create(h5p.LINK_CREATE)
    names.set_char_encoding(h5t.CSET_UTF8)
    return names


def _create_groups(file: h5f.FileID, datasets: Mapping[str, object]) -> dict[str, Any]:
    creation = h5p.create(h5p.GROUP_CREATE)
    creation.set_obj_track_times(False)
    groups: dict[str, Any] = {"": file}
    for path in sorted(groups_of(datasets) - {""}):
        parent, _, name = path.rpartition("/")
        groups[path] = h5g.create(groups[parent], name.encode(), _utf8_names(), creation)
    return groups


def _create_dataset(group: Any, name: str, array: NDArray[Any], creation: h5p.PropDCID, names: h5p.PropLCID) -> int:
    """Create a dataset and return its first byte, from the file's beginning; 0 for an empty dataset."""
    kind = _text_type(array.itemsize) if array.dtype.kind == "S" else NUMBERS[array.dtype.name]
    dataset = h5d.create(group, name.encode(), kind, _space_of(array.shape), creation, names)
    if not array.size:
        return 0
    dataset.write(h5s.ALL, h5s.ALL, array, kind)
    offset: int = dataset.get_offset()
    return offset


def _create_attribute(group: Any, name: str, value: list[str] | str) -> None:
    data = np.array([text.encode() for text in value]) if isinstance(value, list) else np.array(value.encode())
    kind = _text_type(data.itemsize)
    h5a.create(group, name.encode(), kind, _space_of(data.shape)).write(data, kind)


def _text_type(size: int) -> h5t.TypeID:
    """Return the HDF5 type of a UTF-8 string of exactly `size` bytes."""
    kind = h5t.C_S1.copy()
    kind.set_size(size)
    kind.set_strpad(h5t.STR_NULLPAD)
    kind.set_cset(h5t.CSET_UTF8)
    return kind


@lru_cache(1024)
def _space_of(shape: tuple[int, ...]) -> h5s.SpaceID:
    """Return the dataspace of an array. Cached: making one costs as much as writing a small array."""
    return h5s.create_simple(shape) if shape else h5s.create(h5s.SCALAR)
