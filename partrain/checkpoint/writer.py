"""Encoding of a checkpoint. HDF5 builds its image in memory and never touches a real file.

Equal contents give equal bytes: paths are sorted, the file version is fixed, and no times are stored. Every dataset is contiguous,
little-endian and unfiltered, so the numbers have the same bytes in the file as in memory.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partrain.checkpoint.content import (
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
from partrain.checkpoint.hdf5 import NUMBERS, h5a, h5d, h5f, h5g, h5p, h5s, h5t, space_of, stored_dtype, text_array, text_type
from partrain.checkpoint.header import SIZE, Header

ALIGNMENT = 64
ALIGNED_FROM = 1024
"""Bytes: datasets of at least ALIGNED_FROM start on a cache line."""
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
        job = _text(content.job)
        manifest = _text(manifest_text(_with_datasets(content, arrays, job)))
        parse_manifest(manifest.tobytes())
    except ContentRefused as error:
        raise ValueError(str(error)) from None
    payload = _build({**arrays, JOB: job, MANIFEST: manifest})
    return Header.of(payload, content.run, content.round).render() + payload


def _plain(path: str, array: NDArray[Any]) -> NDArray[Any]:
    """Return the array as the file stores it: little-endian, C order, booleans as bytes. No copy if it is so already."""
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


def _with_datasets(content: Content, arrays: Mapping[str, NDArray[Any]], job: NDArray[Any]) -> dict[str, Any]:
    """Add to the manifest a list of all datasets except the manifest itself."""
    if DATASETS in content.manifest:
        raise ValueError(f"the manifest's key `{DATASETS}` is reserved")
    kinds = {path: np.asarray(array).dtype.name for path, array in content.arrays.items()}
    listed = {path: _entry(kinds[path], array) for path, array in arrays.items()}
    return {**content.manifest, DATASETS: {**listed, JOB: _entry(f"S{job.itemsize}", job)}}


def _entry(kind: str, array: NDArray[Any]) -> dict[str, Any]:
    return {"dtype": kind, "shape": list(array.shape), "sha256": hashlib.sha256(array.data).hexdigest()}


def _build(datasets: Mapping[str, NDArray[Any]]) -> bytes:
    """Build the HDF5 image, without its user block."""
    file = h5f.create(next(_file_names), h5f.ACC_TRUNC, _creation(), _in_memory())
    try:
        groups = _create_groups(file, datasets)
        creation = _dataset_creation()
        names = _utf8_names()
        for path, array in datasets.items():
            parent, _, name = path.rpartition("/")
            _create_dataset(groups[parent], name, array, creation, names)
        for path, attributes in viewer_attributes(datasets).items():
            for name, value in attributes.items():
                _create_attribute(groups[path], name, value)
        h5f.flush(file)
        image: bytes = file.get_file_image()
        return image
    finally:
        file.close()


def _creation() -> h5p.PropFCID:
    creation = h5p.create(h5p.FILE_CREATE)
    creation.set_userblock(SIZE)
    creation.set_obj_track_times(False)
    return creation


def _in_memory() -> h5p.PropFAID:
    access = h5p.create(h5p.FILE_ACCESS)
    access.set_fapl_core(INCREMENT, False)
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


def _create_dataset(group: Any, name: str, array: NDArray[Any], creation: h5p.PropDCID, names: h5p.PropLCID) -> None:
    kind = text_type(array.itemsize) if array.dtype.kind == "S" else NUMBERS[stored_dtype(array.dtype.name)]
    dataset = h5d.create(group, name.encode(), kind, space_of(array.shape), creation, names)
    if array.size:
        dataset.write(h5s.ALL, h5s.ALL, array, kind)


def _create_attribute(group: Any, name: str, value: list[str] | str) -> None:
    data = text_array(value)
    kind = text_type(data.itemsize)
    h5a.create(group, name.encode(), kind, space_of(data.shape)).write(data, kind)
