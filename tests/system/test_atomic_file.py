"""A file is replaced as a whole or not at all. `tests/checkpoint/test_files.py` makes every system call fail, one after the other."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest
from support.checkpoint_faults import FaultyOs, fail

from partrain.system import atomic_file as module
from partrain.system.atomic_file import FolderNotSynced, atomic_file


def write(path: Path, data: bytes, **options: bool | int) -> None:
    with atomic_file(path, **options) as descriptor:  # type: ignore[arg-type]
        os.write(descriptor, data)


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@pytest.mark.parametrize("unique", [True, False])
@pytest.mark.parametrize("exclusive", [True, False])
def test_a_new_file(tmp_path: Path, unique: bool, exclusive: bool) -> None:
    write(tmp_path / "x", b"new", unique=unique, exclusive=exclusive)
    assert (tmp_path / "x").read_bytes() == b"new"
    os.umask(mask := os.umask(0))
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o666 & ~mask
    assert names(tmp_path) == ["x"]


def test_a_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"old and longer")
    write(tmp_path / "x", b"new")
    assert (tmp_path / "x").read_bytes() == b"new"


def test_an_exclusive_file_replaces_nothing(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"old")
    with pytest.raises(FileExistsError):
        write(tmp_path / "x", b"new", exclusive=True)
    assert (tmp_path / "x").read_bytes() == b"old"
    assert names(tmp_path) == ["x"]


def test_an_exclusive_file_where_there_are_no_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    faulty = FaultyOs(1, fail(errno.EPERM), only="link")
    monkeypatch.setattr(module, "os", faulty)
    write(tmp_path / "x", b"new", exclusive=True)
    assert faulty.fired == ["link"]
    assert names(tmp_path) == ["x"]


@pytest.mark.parametrize("unique", [True, False])
def test_an_error_leaves_the_old_file(tmp_path: Path, unique: bool) -> None:
    (tmp_path / "x").write_bytes(b"old")
    with pytest.raises(TypeError), atomic_file(tmp_path / "x", unique=unique) as descriptor:
        os.write(descriptor, "no bytes")  # type: ignore[arg-type]
    assert (tmp_path / "x").read_bytes() == b"old"
    assert names(tmp_path) == ["x"]


def test_what_a_killed_attempt_left_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "x.part").write_bytes(b"the beginning of something longer")
    write(tmp_path / "x", b"new", unique=False)
    assert (tmp_path / "x").read_bytes() == b"new"
    assert names(tmp_path) == ["x"]


@pytest.mark.parametrize(("sync", "sync_folder", "count"), [(False, False, 0), (True, False, 1), (True, True, 2)])
def test_syncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync: bool, sync_folder: bool, count: int) -> None:
    faulty = FaultyOs(9, fail(errno.EIO), only="fsync")
    monkeypatch.setattr(module, "os", faulty)
    write(tmp_path / "x", b"new", sync=sync, sync_folder=sync_folder)
    assert faulty.count == count


def test_a_folder_that_cannot_be_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "os", FaultyOs(2, fail(errno.EIO), only="fsync"))
    with pytest.raises(FolderNotSynced) as caught:
        write(tmp_path / "x", b"new", sync_folder=True)
    assert (caught.value.errno, caught.value.strerror) == (errno.EIO, os.strerror(errno.EIO))
    assert names(tmp_path) == ["x"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may list every folder")
def test_a_folder_that_may_not_be_listed(tmp_path: Path) -> None:
    tmp_path.chmod(0o300)
    try:
        write(tmp_path / "x", b"new")
    finally:
        tmp_path.chmod(0o700)
    assert (tmp_path / "x").read_bytes() == b"new"
