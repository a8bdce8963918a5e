"""Malicious files. Header and digests are right, so only the check of the structure or of the manifest can refuse them."""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from support.checkpoint_samples import content, entry, forge, put

from partrain.checkpoint import decode, encode, structure
from partrain.checkpoint.content import ContentRefused
from partrain.errors import BadCheckpoint

SECRET = b"nobody may read this"


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    """A private file of the host, and an HDF5 file that a link could point to."""
    path = tmp_path / "canary.h5"
    with h5py.File(path, "w") as file:
        file["step"] = np.array(3)
        file["group/step"] = np.array(3)
    path.write_bytes(path.read_bytes() + SECRET)
    return path


class Watch:
    """Detects whether a process opened a file of a folder since the last call (inotify, which no process can avoid)."""

    def __init__(self, folder: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        opened, accessed = 0x20, 0x1
        assert libc.inotify_add_watch(self.descriptor, str(folder).encode(), opened | accessed) >= 0

    def fired(self) -> bool:
        try:
            return bool(os.read(self.descriptor, 65536))
        except BlockingIOError:
            return False


@pytest.fixture
def watch(canary: Path) -> Iterator[Watch]:
    watch = Watch(canary.parent)
    yield watch
    os.close(watch.descriptor)


def test_the_watch_sees_what_plain_h5py_does(canary: Path, watch: Watch, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("outside") / "link.h5"
    with h5py.File(path, "w") as file:
        file["x"] = h5py.ExternalLink(str(canary), "/step")
        assert not watch.fired()
        assert file["x"][()] == 3
    assert watch.fired()


def test_the_forge_is_right() -> None:
    assert decode(forge()).round == 3
    assert decode(forge(lambda file: None)).round == 3
    assert decode(forge(patch=lambda image: None)).round == 3
    assert decode(forge(lambda file: put(file, "rule/extra", np.ones(3)), list_extra(np.ones(3)))).round == 3


def list_extra(array: np.ndarray, path: str = "rule/extra") -> Callable[[dict[str, Any]], None]:
    """List the new dataset in the manifest as if it were a plain one."""
    return lambda datasets: datasets.update({path: entry(array)})


def external_link(file: h5py.File, canary: str) -> None:
    file["rule/extra"] = h5py.ExternalLink(canary, "/step")


def external_link_inside_a_path(file: h5py.File, canary: str) -> None:
    del file["rule"]
    file["rule"] = h5py.ExternalLink(canary, "/group")


def soft_link(file: h5py.File, canary: str) -> None:
    file["rule/extra"] = h5py.SoftLink("/rule/step")


def dangling_link(file: h5py.File, canary: str) -> None:
    file["rule/extra"] = h5py.SoftLink("/nowhere")


def cyclic_soft_link(file: h5py.File, canary: str) -> None:
    file["rule/extra"] = h5py.SoftLink("/rule/extra")


def hard_link_twice(file: h5py.File, canary: str) -> None:
    file["rule/extra"] = file["rule/step"]


def hard_link_cycle(file: h5py.File, canary: str) -> None:
    file["rule/extra"] = file["/"]


def hard_link_to_parent(file: h5py.File, canary: str) -> None:
    file["workers/0/extra"] = file["workers"]


def external_storage(file: h5py.File, canary: str) -> None:
    file.create_dataset("rule/extra", (3,), "f8", external=[(canary, 0, 24)], track_times=False)


def virtual(file: h5py.File, canary: str) -> None:
    creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    creation.set_obj_track_times(False)
    space = h5py.h5s.create_simple((3,))
    creation.set_virtual(space, canary.encode(), b"step", space)
    h5py.h5d.create(file["rule"].id, b"extra", h5py.h5t.IEEE_F64LE, space, creation)


def shape_bomb(file: h5py.File, canary: str) -> None:
    file.create_dataset("rule/extra", (2**50,), "f8", track_times=False)


def many_small_bombs(file: h5py.File, canary: str) -> None:
    for number in range(100):
        file.create_dataset(f"rule/extra{number}", (2**17,), "f8", track_times=False)


def empty_group(file: h5py.File, canary: str) -> None:
    low_level_group(file["rule"], b"extra")


def low_level_group(parent: h5py.Group, name: bytes) -> None:
    creation = h5py.h5p.create(h5py.h5p.GROUP_CREATE)
    creation.set_obj_track_times(False)
    h5py.h5g.create(parent.id, name, gcpl=creation)


def dataset_with(**options: Any) -> Callable[[h5py.File, str], None]:
    def change(file: h5py.File, canary: str) -> None:
        file.create_dataset("rule/extra", data=options.pop("data", np.ones(3)), track_times=False, **options)

    change.__name__ = next(iter(options))
    return change


def plain(dtype: Any, data: Any) -> Callable[[h5py.File, str], None]:
    return lambda file, canary: file.create_dataset("rule/extra", data=data, dtype=dtype, track_times=False) and None


def object_reference(file: h5py.File, canary: str) -> None:
    file.create_dataset("rule/extra", data=file["rule/step"].ref, dtype=h5py.ref_dtype, track_times=False)


def region_reference(file: h5py.File, canary: str) -> None:
    reference = file["model/0.bias"].regionref[:2]
    file.create_dataset("rule/extra", data=reference, dtype=h5py.regionref_dtype, track_times=False)


def low_level(kind: Any, layout: int = h5py.h5d.CONTIGUOUS) -> Callable[[h5py.File, str], None]:
    def change(file: h5py.File, canary: str) -> None:
        creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        creation.set_obj_track_times(False)
        creation.set_layout(layout)
        creation.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        h5py.h5d.create(file["rule"].id, b"extra", kind, h5py.h5s.create_simple((3,)), creation)

    return change


def odd_float() -> Any:
    kind = h5py.h5t.IEEE_F32LE.copy()
    kind.set_ebias(100)
    return kind


def odd_integer() -> Any:
    kind = h5py.h5t.STD_I16LE.copy()
    kind.set_precision(12)
    return kind


def named_type(file: h5py.File, canary: str) -> None:
    h5py.h5t.IEEE_F64LE.copy().commit(file["rule"].id, b"extra")


def null_space(file: h5py.File, canary: str) -> None:
    file.create_dataset("rule/extra", data=h5py.Empty("f8"), track_times=False)


def fill_value(file: h5py.File, canary: str) -> None:
    file.create_dataset("rule/extra", data=np.ones(3), fillvalue=7.0, track_times=False)


def times(file: h5py.File, canary: str) -> None:
    file.create_dataset("rule/extra", data=np.ones(3), track_times=True)


def comment(file: h5py.File, canary: str) -> None:
    h5py.h5o.set_comment(file["rule/step"].id, b"hidden")


def attribute(path: str, name: str = "extra", value: Any = 1) -> Callable[[h5py.File, str], None]:
    return lambda file, canary: file[path].attrs.create(name, value)


def huge_attribute(file: h5py.File, canary: str) -> None:
    file["history"].attrs.create("signal", np.bytes_(b"x" * 60000))


def many_attributes(file: h5py.File, canary: str) -> None:
    for number in range(20):
        file["history"].attrs.create(f"extra{number}", number)


def attribute_renamed(file: h5py.File, canary: str) -> None:
    h5py.h5a.rename(file["history"].id, b"signal", b"signals")


def deep(file: h5py.File, canary: str) -> None:
    put(file, "rule/" + "/".join("abcdefgh"), np.ones(3))


def long_name(file: h5py.File, canary: str) -> None:
    put(file, "rule/" + "n" * 1025, np.ones(3))


def rank_nine(file: h5py.File, canary: str) -> None:
    put(file, "rule/extra", np.ones((1,) * 9))


def old_group(file: h5py.File, canary: str) -> None:
    """Copy a group of the oldest format from another file."""
    with h5py.File.in_memory(libver="earliest") as other:
        other["old/extra"] = np.ones(3)
        h5py.h5o.copy(other.id, b"old", file["rule"].id, b"old")


STRUCTURE: dict[str, tuple[Callable[[h5py.File, str], None], str]] = {
    "external link": (external_link, "a link to another file"),
    "external link inside a path": (external_link_inside_a_path, "'/rule' is a link to another file"),
    "soft link": (soft_link, "a soft link"),
    "dangling soft link": (dangling_link, "a soft link"),
    "cyclic soft link": (cyclic_soft_link, "a soft link"),
    "hard link twice": (hard_link_twice, "more than one link"),
    "hard link cycle": (hard_link_cycle, "more than one link"),
    "hard link to a parent": (hard_link_to_parent, "more than one link"),
    "external storage": (external_storage, "external storage"),
    "virtual": (virtual, "stored virtual"),
    "shape bomb": (shape_bomb, "0 bytes in the file"),
    "many small bombs": (many_small_bombs, "0 bytes in the file"),
    "empty group": (empty_group, "an empty group"),
    "gzip": (dataset_with(compression="gzip"), "filters"),
    "lzf": (dataset_with(compression="lzf"), "filters"),
    "shuffle": (dataset_with(shuffle=True), "filters"),
    "fletcher32": (dataset_with(fletcher32=True), "filters"),
    "scale-offset": (dataset_with(scaleoffset=2), "filters"),
    "chunked": (dataset_with(chunks=(2,)), "stored chunked"),
    "resizable": (dataset_with(maxshape=(None,)), "stored chunked"),
    "compact": (low_level(h5py.h5t.IEEE_F64LE, h5py.h5d.COMPACT), "stored compact"),
    "variable-length text": (plain(h5py.string_dtype(), "text"), "something other than plain"),
    "variable-length text of bytes": (plain(h5py.string_dtype("ascii"), "text"), "something other than plain"),
    "variable-length numbers": (low_level(h5py.h5t.vlen_create(h5py.h5t.STD_I32LE)), "something other than plain"),
    "ASCII text": (plain("S4", b"text"), "something other than plain"),
    "object reference": (object_reference, "something other than plain"),
    "region reference": (region_reference, "something other than plain"),
    "compound": (plain([("a", "i4"), ("b", "f4")], np.zeros(3, [("a", "i4"), ("b", "f4")])), "something other than plain"),
    "complex": (plain("c8", np.ones(3, "c8")), "something other than plain"),
    "enum": (plain(h5py.enum_dtype({"A": 1}, "u1"), np.ones(3, "u1")), "something other than plain"),
    "truth values as an enum": (plain(bool, np.ones(3, bool)), "something other than plain"),
    "opaque": (low_level(h5py.h5t.create(h5py.h5t.OPAQUE, 5)), "something other than plain"),
    "array type": (low_level(h5py.h5t.array_create(h5py.h5t.IEEE_F64LE, (2,))), "something other than plain"),
    "bit field": (low_level(h5py.h5t.STD_B8LE), "something other than plain"),
    "big-endian": (low_level(h5py.h5t.IEEE_F64BE), "something other than plain"),
    "odd float": (low_level(odd_float()), "something other than plain"),
    "odd integer": (low_level(odd_integer()), "something other than plain"),
    "named type": (named_type, "neither a group nor a dataset"),
    "null space": (null_space, "does not have a fixed shape|bytes in the file"),
    "fill value": (fill_value, "a fill value"),
    "times": (times, "such as one with times"),
    "comment": (comment, "a comment"),
    "attribute of the root": (attribute("/"), "unexpected attributes"),
    "attribute of a group": (attribute("/model"), "unexpected attributes"),
    "attribute of a dataset": (attribute("/rule/step"), "attributes"),
    "many attributes": (many_attributes, "unexpected attributes"),
    "huge attribute": (huge_attribute, "not what it should be"),
    "attribute of another value": (attribute("/history", "signal", np.bytes_(b"zzzz")), "not what it should be"),
    "attribute of variable length": (attribute("/history", "signal", "loss"), "not what it should be"),
    "attribute renamed": (attribute_renamed, "not what it should be"),
    "too deep": (deep, "more than 8 levels"),
    "long name": (long_name, "more than 1024 bytes"),
    "rank nine": (rank_nine, "does not have a fixed shape"),
    "old group": (old_group, "such as one with times|the old group format"),
}


@pytest.mark.parametrize("name", STRUCTURE)
def test_structure_is_refused_before_any_number_is_read(name: str, canary: Path, watch: Watch) -> None:
    attack, message = STRUCTURE[name]
    data = forge(lambda file: attack(file, str(canary)), list_extra(np.ones(3)))
    watch.fired()  # forging may have opened the canary
    with pytest.raises(ContentRefused, match=message):  # the check of the structure cannot read numbers
        structure.read_structure(data)
    with pytest.raises(BadCheckpoint) as caught:
        decode(data, "run/checkpoint.h5")
    assert not watch.fired(), "a file of the host was opened"
    assert caught.value.code == 65
    assert caught.value.render().count("\n") == 0
    assert caught.value.message.startswith("run/checkpoint.h5: ")


def replacing(old: bytes, new: bytes) -> Callable[[bytearray], None]:
    def patch(image: bytearray) -> None:
        assert image.count(old) == 1, image.count(old)
        image[:] = image.replace(old, new)

    return patch


LENGTH = struct.pack("<Q", 12345)


def places(image: bytearray) -> list[int]:
    """Find the offsets of the number 12345: each dataset has its length, its maximal length, and its size after its address."""
    found, place = [], image.find(LENGTH)
    while place >= 0:
        found.append(place)
        place = image.find(LENGTH, place + 8)
    return found


def dimension(number: int) -> Callable[[bytearray], None]:
    """Change the length in the header of a dataset of 12345 bytes; its layout keeps the true size."""

    def patch(image: bytearray) -> None:
        for place in places(image)[:2]:
            image[place : place + 8] = struct.pack("<Q", number)

    return patch


def unknown_link(image: bytearray) -> None:
    """Change a link's type 64 (to another file) to 65, which is not registered."""
    place = image.find(b"outwards")
    assert image[place - 2] == 64
    image[place - 2] = 65


def overlap(image: bytearray) -> None:
    """Move the second of two datasets of 12345 bytes onto the first."""
    _, _, first, _, _, second = places(image)
    image[second - 8 : second] = image[first - 8 : first]


def outside(image: bytearray) -> None:
    _, _, layout = places(image)
    image[layout - 8 : layout] = struct.pack("<Q", len(image) - 100)


ODD = np.zeros(12345, np.uint8)
BYTES: dict[str, tuple[dict[str, Any], str]] = {
    "name with a slash": ({"patch": replacing(b"\x04step", b"\x04st/p")}, "slash"),
    "name of the parent": (
        {"more_arrays": {"rule/zz": np.ones(3)}, "patch": replacing(b"\x02zz", b"\x02..")},
        "not a path of plain names",
    ),
    "name not UTF-8": ({"patch": replacing(b"\x04step", b"\x04s\xff\xfep")}, "cannot read"),
    "dimension overflow": ({"more_arrays": {"rule/odd": ODD}, "patch": dimension(2**63 + 5)}, "cannot read|bytes in the file"),
    "dimension of all ones": (
        {"more_arrays": {"rule/odd": ODD}, "patch": dimension(2**64 - 1)},
        "cannot read|bytes in the file|no plain",
    ),
    "dimension too small": ({"more_arrays": {"rule/odd": ODD}, "patch": dimension(12344)}, "bytes in the file"),
    "dimension too big": ({"more_arrays": {"rule/odd": ODD}, "patch": dimension(12346)}, "cannot read|bytes in the file"),
    "link of an unknown type": (
        {"change": lambda file: file["rule"].__setitem__("outwards", h5py.ExternalLink("x", "y")), "patch": unknown_link},
        "a link of unknown kind",
    ),
    "datasets that overlap": ({"more_arrays": {"rule/odd": ODD, "rule/pdd": ODD}, "patch": overlap}, "overlaps other data"),
    "numbers outside the file": ({"more_arrays": {"rule/odd": ODD}, "patch": outside}, "outside the file|cannot read"),
}


@pytest.mark.parametrize("name", BYTES)
def test_patched_metadata_is_refused(name: str) -> None:
    how, message = BYTES[name]
    with pytest.raises(ContentRefused, match=message):
        structure.read_structure(forge(**how))
    with pytest.raises(BadCheckpoint):
        decode(forge(**how))


def test_a_name_cut_short_by_a_zero_is_another_name() -> None:
    with pytest.raises(BadCheckpoint, match="not in the manifest"):
        decode(forge(patch=replacing(b"\x04step", b"\x04st\0p")))


def test_fuzz_through_the_digests() -> None:
    """Fuzz in a separate process, under limits: a crash of libhdf5 must show here, not in a user's run."""
    command = [sys.executable, "-m", "support.checkpoint_fuzz", "0", "400"]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    refused, accepted = map(int, done.stdout.split())
    assert refused > 200
    assert accepted < refused


def test_more_objects_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structure, "MAX_OBJECTS", 12)
    with pytest.raises(BadCheckpoint, match="more than 12 objects"):
        decode(encode(content()))


def test_bytes_behind_the_image() -> None:
    """All digests are right, and HDF5 itself would not look at them."""
    with pytest.raises(BadCheckpoint, match="9 bytes are behind the end of the HDF5 image"):
        decode(forge(patch=lambda image: image.extend(b"#!/bin/sh")))
