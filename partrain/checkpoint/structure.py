"""The structure of an HDF5 image, checked before any number is read: only structures that `writer` makes are accepted.

The check lists allowed structures, not dangerous ones. It examines each link before following it: it must be a hard link, and the
only link to its object. It examines the messages in each object's header before opening the object. Each dataset must be one
contiguous range of this file, as long as its shape requires, and no two may overlap. So a file never claims more numbers than it
has bytes, and cannot refer to another file.
"""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from partrain.checkpoint.content import MAX_OBJECTS, MAX_RANK, ContentRefused, check_path, groups_of, viewer_attributes
from partrain.checkpoint.hdf5 import NUMBERS, h5a, h5d, h5f, h5fd, h5g, h5l, h5o, h5p, h5t, text_array, text_type
from partrain.checkpoint.header import SIZE

_BOOKKEEPING = {0x00, 0x10, 0x15}
"""Header messages of HDF5 itself: free space, continuation, and the (maybe empty) index of attributes."""
_ALLOWED = {
    h5o.TYPE_GROUP: _BOOKKEEPING | {0x02, 0x06, 0x0A, 0x0C},  # links in two forms, group, attributes
    h5o.TYPE_DATASET: _BOOKKEEPING | {0x01, 0x03, 0x05, 0x08},  # shape, type, fill value, layout
}
"""Messages that the header of an object may hold, by their numbers in the HDF5 file format."""
_MESSAGES = {
    0x04: "an old fill value",
    0x07: "external storage",
    0x0B: "filters",
    0x0C: "attributes",
    0x0D: "a comment",
    0x0E: "times",
    0x11: "the old group format",
    0x12: "times",
    0x16: "several links to it",
}
_END = slice(SIZE + 28, SIZE + 36)
"""Place of the image's end in its superblock (versions 2 and 3), in bytes from the file's beginning."""
_SIZE_OF_SIZE = 0x03
"""Flags of an object header that only describe its own layout."""
_LINKS = {h5l.TYPE_SOFT: "a soft link", h5l.TYPE_EXTERNAL: "a link to another file"}
_LAYOUTS = {h5d.COMPACT: "compact", h5d.CHUNKED: "chunked", h5d.VIRTUAL: "virtual"}


_file_names = (f"structure-{number}".encode() for number in itertools.count())  # HDF5 refuses two open files of one name


@dataclass(frozen=True)
class Extent:
    """Type, shape and position of one dataset."""

    dtype: np.dtype[Any]
    """Stored type: little-endian numbers, or `S<n>` for a text."""
    shape: tuple[int, ...]
    start: int
    """Bytes from the start of the file."""
    nbytes: int

    @property
    def kind(self) -> str:
        """The type under its name in the manifest, such as `float32` or `S12`."""
        return self.dtype.str[1:] if self.dtype.kind == "S" else self.dtype.name


@dataclass
class _Structure:
    extents: dict[str, Extent] = field(default_factory=dict)
    groups: dict[str, Any] = field(default_factory=dict)
    attributes: dict[str, int] = field(default_factory=dict)
    addresses: set[int] = field(default_factory=set)


def read_structure(data: bytes) -> dict[str, Extent]:
    """Return all datasets of a whole file (header included) by path. ContentRefused for any structure that `writer` does not make."""
    try:
        file = h5f.open(next(_file_names), h5f.ACC_RDONLY, _from_memory(data))
        try:
            return _read_structure(file, len(data), int.from_bytes(data[_END], "little"))
        finally:
            file.close()
    except ContentRefused:
        raise
    except Exception as error:  # any error of HDF5 means that the file is wrong
        raise ContentRefused(
            f"HDF5 cannot read its structure ({str(error).splitlines()[0][:100] if str(error) else type(error).__name__})"
        ) from None


def _from_memory(data: bytes) -> h5p.PropFAID:
    """Make an access list over these bytes: HDF5 reads the pieces it needs, without a second copy and without a file."""
    access = h5p.create(h5p.FILE_ACCESS)
    access.set_fileobj_driver(h5fd.fileobj_driver, io.BytesIO(data))
    access.set_fclose_degree(h5f.CLOSE_STRONG)
    return access


def _read_structure(file: h5f.FileID, size: int, end: int) -> dict[str, Extent]:
    if file.get_create_plist().get_userblock() != SIZE:
        raise ContentRefused("the HDF5 image is not where the header ends")
    if end != size:
        raise ContentRefused(
            f"{abs(size - end)} bytes are {'behind the end of' if size > end else 'missing from'} the HDF5 image"
        )
    found = _Structure()
    _visit(h5g.open(file, b"/"), h5o.get_info(file), "", found)
    for path in sorted(set(found.groups) - groups_of(found.extents)):
        raise ContentRefused(f"{path!r} is an empty group")
    _check_apart(found.extents, size)
    _check_attributes(found)
    return found.extents


def _visit(group: h5g.GroupID, info: h5o.ObjInfo, path: str, found: _Structure) -> None:
    """Check one group, and everything below it."""
    found.groups[path] = group
    found.attributes[path] = info.num_attrs
    found.addresses.add(info.addr)
    for name in _names(group, path, found):
        below = f"{path}/{name}" if path else name
        check_path(below)
        info = h5o.get_info(group, name.encode())
        _check_object(below, info, found)
        if info.type == h5o.TYPE_GROUP:
            _visit(h5g.open(group, name.encode()), info, below, found)
        else:
            found.extents[below] = _extent(h5d.open(group, name.encode()), below)


def _names(group: h5g.GroupID, path: str, found: _Structure) -> list[str]:
    """Return the names in a group. Refuses links other than hard links, and follows none."""
    links: list[tuple[bytes, int]] = []
    limit = MAX_OBJECTS - len(found.addresses)

    def collect(name: bytes, info: h5l.LinkInfo) -> bool:
        links.append((name, info.type))
        return len(links) > limit

    group.links.iterate(collect, info=True)
    if len(links) > limit:
        raise ContentRefused(f"it holds more than {MAX_OBJECTS} objects")
    for name, kind in links:
        if kind != h5l.TYPE_HARD:
            raise ContentRefused(
                f"{path + '/' + name.decode('utf-8', 'replace')!r} is {_LINKS.get(kind, 'a link of unknown kind')}"
            )
        if b"/" in name:
            raise ContentRefused(f"a name in {path!r} contains a slash")
    return [name.decode("utf-8") for name, _ in links]


def _check_object(path: str, info: h5o.ObjInfo, found: _Structure) -> None:
    if info.addr in found.addresses or info.rc != 1:
        raise ContentRefused(f"{path!r} is reached by more than one link")
    found.addresses.add(info.addr)
    if info.type not in _ALLOWED:
        raise ContentRefused(f"{path!r} is neither a group nor a dataset")
    if info.hdr.version != 2 or info.hdr.flags & ~_SIZE_OF_SIZE:
        raise ContentRefused(f"{path!r} has an object header of another kind, such as one with times")
    unexpected = _bits(info.hdr.mesg.present) - _ALLOWED[info.type] | _bits(info.hdr.mesg.shared)
    for message in sorted(unexpected):
        raise ContentRefused(f"{path!r} has {_MESSAGES.get(message, f'an unexpected property ({message:#x})')}")


def _bits(mask: int) -> set[int]:
    return {number for number in range(mask.bit_length()) if mask >> number & 1}


def _extent(dataset: h5d.DatasetID, path: str) -> Extent:
    creation = dataset.get_create_plist()
    if creation.get_layout() != h5d.CONTIGUOUS:
        raise ContentRefused(f"{path!r} is stored {_LAYOUTS.get(creation.get_layout(), 'in an unknown way')}, not contiguous")
    if creation.get_external_count() or creation.get_nfilters():  # the header messages excluded both; a second check is cheap
        raise ContentRefused(f"{path!r} has external storage or filters")
    if creation.fill_value_defined() == h5d.FILL_VALUE_USER_DEFINED:
        raise ContentRefused(f"{path!r} has a fill value")
    dtype = _dtype(dataset.get_type(), path)
    space = dataset.get_space()
    shape = tuple(int(length) for length in space.get_simple_extent_dims()) if space.is_simple() else ()
    fixed = space.is_simple() and shape == tuple(space.get_simple_extent_dims(True))
    if not fixed or len(shape) > MAX_RANK or space.get_simple_extent_npoints() != math.prod(shape):
        raise ContentRefused(f"{path!r} does not have a fixed shape of at most {MAX_RANK} axes")
    nbytes = math.prod(shape) * dtype.itemsize
    if dataset.get_storage_size() != nbytes or (nbytes and dataset.get_offset() is None):
        raise ContentRefused(f"{path!r} has the shape {shape}, but {dataset.get_storage_size()} bytes in the file")
    return Extent(dtype, shape, int(dataset.get_offset()) if nbytes else SIZE, nbytes)


def _dtype(kind: h5t.TypeID, path: str) -> np.dtype[Any]:
    """Return the type of a dataset's numbers. Equality with a known type excludes other byte orders, classes and widths."""
    if isinstance(kind, h5t.TypeStringID) and not kind.is_variable_str() and kind.equal(text_type(kind.get_size())):
        return np.dtype(f"S{kind.get_size()}")
    for name, known in NUMBERS.items():
        if kind.equal(known):
            return np.dtype(name).newbyteorder("<")
    raise ContentRefused(f"{path!r} holds something other than plain little-endian numbers or fixed-length text")


def _check_apart(extents: Mapping[str, Extent], size: int) -> None:
    """Refuse datasets that reach outside the file or overlap."""
    end = SIZE
    for start, nbytes, path in sorted((extent.start, extent.nbytes, path) for path, extent in extents.items() if extent.nbytes):
        if start < end or start + nbytes > size:
            raise ContentRefused(f"{path!r} overlaps other data or lies outside the file")
        end = start + nbytes


def _check_attributes(found: _Structure) -> None:
    """Refuse all attributes except those that make a viewer open on the loss curve."""
    expected = viewer_attributes(found.extents)
    for path, count in found.attributes.items():
        if count != len(expected.get(path, {})):
            raise ContentRefused(f"the group {'/' + path!r} has unexpected attributes")
        for name, value in expected.get(path, {}).items():
            if not _holds(found.groups[path], name.encode(), value):
                raise ContentRefused(f"the attribute {name!r} of {'/' + path!r} is not what it should be")


def _holds(group: h5g.GroupID, name: bytes, value: list[str] | str) -> bool:
    """Return True if an attribute exists with exactly this value. Its size is checked before it is read."""
    if not h5a.exists(group, name):
        return False
    attribute, wanted = h5a.open(group, name), text_array(value)
    if not attribute.get_type().equal(text_type(wanted.itemsize)) or attribute.shape != wanted.shape:
        return False
    found = np.empty_like(wanted)
    attribute.read(found, text_type(wanted.itemsize))
    return bool((found == wanted).all())
