"""Files are whole or absent, even if any system call fails while they are written."""

from __future__ import annotations

import errno
import fcntl
import gc
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.checkpoint_faults import FaultyOs, commit, fail, prepare, replace_os
from support.checkpoint_samples import JOB, arrays, manifest

from partrain.checkpoint import Content, encode, files, link_latest, prune, read, round_path, write
from partrain.errors import InputOutputFailed

HERE = Path(__file__).parents[1]


def state(number: int) -> bytes:
    no_history = {path: array for path, array in arrays().items() if not path.startswith("history/")}
    return encode(Content(no_history, JOB, manifest(round=number)))


OLD, NEW = state(1), state(2)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Make a run that has committed round 1."""
    prepare(tmp_path / "run", OLD)
    return tmp_path / "run"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_file())


def temporaries(run: Path) -> list[str]:
    return [path.name for path in run.rglob("*.tmp")]


def assert_whole(run: Path) -> None:
    """Check that every checkpoint is valid, and that the newest is the old or the new state."""
    assert read(run / "checkpoint.h5").round in (1, 2)
    found = [path for path in (run / "checkpoints").iterdir() if path.suffix == ".h5"]
    assert found
    for path in found:
        assert path == round_path(run, read(path).round)


def test_a_commit(run: Path) -> None:
    commit(run, NEW)
    assert names(run) == ["checkpoint.h5"]
    assert names(run / "checkpoints") == ["round-000002.h5"]
    assert (run / "checkpoint.h5").read_bytes() == NEW
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE((run / "checkpoint.h5").stat().st_mode) == 0o666 & ~mask
    assert (run / "checkpoint.h5").samefile(round_path(run, 2))


def test_linking_the_same_file_twice_leaves_nothing_behind(run: Path) -> None:
    for _ in range(2):
        assert link_latest(run, round_path(run, 1)) == run / "checkpoint.h5"
    assert names(run) == ["checkpoint.h5"]


def test_where_names_cannot_be_shared_the_file_is_copied(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(round_path(run, 2), NEW)
    for number in (errno.EPERM, errno.EOPNOTSUPP, errno.EXDEV):
        faulty = FaultyOs(1, fail(number), only="link")
        replace_os(faulty, monkeypatch.setattr)
        link_latest(run, round_path(run, 2))
        assert faulty.fired == ["link"]
        assert (run / "checkpoint.h5").read_bytes() == NEW
        assert not (run / "checkpoint.h5").samefile(round_path(run, 2))
        assert temporaries(run) == []


def attempt(run: Path) -> InputOutputFailed | None:
    try:
        commit(run, NEW)
    except InputOutputFailed as failure:
        return failure
    return None


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS])
def test_every_call_fails_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, lasting: bool) -> None:
    """The N-th call fails, alone or with all after it, for N = 1, 2, ... until the commit gets through."""
    hit = []
    for at in range(1, 1000):
        run = tmp_path / f"{at}"
        prepare(run, OLD)
        faulty = FaultyOs(at, fail(number), lasting)
        with monkeypatch.context() as patch:
            replace_os(faulty, patch.setattr)
            failure = attempt(run)
        if failure:
            assert (failure.code, failure.render().count("\n")) == (74, 0)
            assert os.strerror(number) in failure.message
            assert str(run) in failure.message
        assert_whole(run)
        if not faulty.fired:
            break
        hit.append(faulty.fired[0])
        assert failure or faulty.fired[0] in {"close", "unlink"}, "an error was swallowed"
        if not lasting:
            assert temporaries(run) == []
        commit(run, NEW)  # the next commit repairs everything
        assert temporaries(run) == []
        assert names(run / "checkpoints") == ["round-000002.h5"]
    assert {"open", "write", "fsync", "close", "rename", "link", "unlink", "posix_fallocate", "listdir"} <= set(hit)
    assert hit.count("fsync") == 3  # the file, its folder, the run folder


ADVICE = {
    errno.ENOSPC: "make room, then resume",
    errno.EDQUOT: "make room, then resume",
    errno.EFBIG: "raise the limit of file sizes (ulimit -f), then resume",
    errno.EROFS: "make the folder writable again, then resume, or resume into another with --out",
    errno.EACCES: "make the folder writable again, then resume, or resume into another with --out",
    errno.EIO: "mend the disk, then resume",
    errno.ENOENT: "bring the folder back, then resume, or resume into another with --out",
}


@pytest.mark.parametrize("number", ADVICE)
def test_the_advice_is_for_what_went_wrong(run: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    replace_os(FaultyOs(1, fail(number), only="rename"), monkeypatch.setattr)
    with pytest.raises(InputOutputFailed) as caught:
        write(round_path(run, 2), NEW)
    assert caught.value.message == f"cannot write {round_path(run, 2)}: {os.strerror(number)}; {ADVICE[number]}"


def test_a_failed_fsync_is_not_repeated(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    faulty = FaultyOs(1, fail(errno.EIO), only="fsync")
    replace_os(faulty, monkeypatch.setattr)
    with pytest.raises(InputOutputFailed):
        write(round_path(run, 2), NEW)
    assert faulty.count == 1


def test_a_folder_that_could_not_be_synced_is_reported(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_os(FaultyOs(2, fail(errno.EIO), only="fsync"), monkeypatch.setattr)
    with pytest.raises(InputOutputFailed, match="is in place, but its folder could not be synced"):
        write(round_path(run, 2), NEW)
    assert read(round_path(run, 2)).round == 2


def test_folders_that_cannot_be_synced_at_all(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    faulty = FaultyOs(2, fail(errno.EINVAL), only="fsync")
    replace_os(faulty, monkeypatch.setattr)
    write(round_path(run, 2), NEW)
    assert faulty.fired == ["fsync"]


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EINVAL])
def test_space_that_cannot_be_reserved(run: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    faulty = FaultyOs(1, fail(number), only="posix_fallocate")
    replace_os(faulty, monkeypatch.setattr)
    write(round_path(run, 2), NEW)
    assert faulty.fired == ["posix_fallocate"]
    assert read(round_path(run, 2)).round == 2


def test_short_writes(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def short(name: str, real: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> int:
        written: int = real(args[0], args[1][:1000])
        return written

    faulty = FaultyOs(1, short, lasting=True, only="write")
    replace_os(faulty, monkeypatch.setattr)
    write(round_path(run, 2), NEW)
    assert faulty.count == -(-len(NEW) // 1000)
    assert round_path(run, 2).read_bytes() == NEW


def test_signals_meanwhile(tmp_path: Path) -> None:
    seen = []
    before = signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
    signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)
    try:
        for _ in range(20):
            write(tmp_path / "x", bytes(1 << 22))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert seen
    assert (tmp_path / "x").stat().st_size == 1 << 22


def test_an_interrupt_leaves_the_old_file(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    for only in ("write", "fsync", "posix_fallocate", "rename"):
        faulty = FaultyOs(1, interrupt, only=only)
        with monkeypatch.context() as patch:
            replace_os(faulty, patch.setattr)
            with pytest.raises(KeyboardInterrupt):
                write(round_path(run, 1), NEW)
        assert faulty.fired == [only]
        assert round_path(run, 1).read_bytes() == OLD
        assert temporaries(run) == []


def test_killed_at_every_call(tmp_path: Path) -> None:
    """SIGKILL before and after each call leaves the old or the new file. The next commit removes temporary files."""
    (tmp_path / "old").write_bytes(OLD)
    (tmp_path / "new").write_bytes(NEW)
    done = subprocess.run([sys.executable, HERE / "support" / "checkpoint_faults.py", tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    hit = done.stdout.split()
    assert {"open", "write", "fsync", "close", "rename", "link", "unlink", "posix_fallocate", "listdir"} <= set(hit)
    runs = sorted(path for path in tmp_path.iterdir() if path.is_dir())
    assert len(runs) == 2 * len(hit) + 2
    left = 0
    for run in runs:
        assert_whole(run)
        left += len(temporaries(run))
        commit(run, NEW)
        assert temporaries(run) == []
        assert names(run / "checkpoints") == ["round-000002.h5"]
        assert read(run / "checkpoint.h5").round == 2
    assert left >= 6  # from the creation of the file to its rename


def test_a_file_may_not_grow_beyond_a_limit(tmp_path: Path) -> None:
    """A real refusal of the kernel: EFBIG."""
    script = """
import resource, sys
from pathlib import Path
from partrain.checkpoint import write
from partrain.errors import InputOutputFailed
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
try:
    write(Path(sys.argv[1]), bytes(10_000))
except InputOutputFailed as failure:
    print(failure.message)
"""
    (tmp_path / "x.h5").write_bytes(OLD)
    done = subprocess.run([sys.executable, "-c", script, tmp_path / "x.h5"], capture_output=True, text=True)
    assert "File too large" in done.stdout, done.stderr
    assert (tmp_path / "x.h5").read_bytes() == OLD
    assert names(tmp_path) == ["x.h5"]


def test_folders_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path, message in ((tmp_path / "none" / "x.h5", "No such file"), (tmp_path / "file" / "x.h5", "Not a directory")):
        with pytest.raises(InputOutputFailed, match=message):
            write(path, NEW)
    with pytest.raises(InputOutputFailed, match="No such file"):
        prune(tmp_path / "none", 1, 1)
    with pytest.raises(InputOutputFailed, match="No such file"):
        link_latest(tmp_path, tmp_path / "none.h5")
    assert names(tmp_path) == ["file"]


def test_targets_that_are_no_plain_file(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"other")
    (tmp_path / "soft.h5").symlink_to("other")
    os.link(tmp_path / "other", tmp_path / "hard.h5")
    os.mkfifo(tmp_path / "fifo.h5")
    for name in ("soft.h5", "hard.h5", "fifo.h5"):
        write(tmp_path / name, NEW)
        assert (tmp_path / name).read_bytes() == NEW
        assert not (tmp_path / name).is_symlink()
    assert (tmp_path / "other").read_bytes() == b"other"
    (tmp_path / "folder.h5").mkdir()
    with pytest.raises(InputOutputFailed, match="Is a directory"):
        write(tmp_path / "folder.h5", NEW)
    assert temporaries(tmp_path) == []


@pytest.mark.parametrize(("newest", "keep", "best", "left"), [
    (5, 2, None, [4, 5]), (5, 1, None, [5]), (5, 2, 2, [2, 4, 5]), (5, 2, 4, [4, 5]), (5, 9, None, [1, 2, 3, 4, 5]),
    (3, 2, None, [2, 3]), (3, 1, 1, [1, 3]), (0, 2, None, []),
])  # fmt: skip
def test_prune(tmp_path: Path, newest: int, keep: int, best: int | None, left: list[int]) -> None:
    for number in range(1, 6):
        (tmp_path / f"round-{number:06d}.h5").touch()
    others = ["round-0000001.h5", "round-1.h5", "round-000001.h5.bak", "mine.h5", "notes.tmp"]
    for name in others:
        (tmp_path / name).touch()
    removed = prune(tmp_path, newest, keep, best)
    assert removed == sorted({1, 2, 3, 4, 5} - set(left))
    assert names(tmp_path) == sorted([*others, *(f"round-{number:06d}.h5" for number in left)])


def test_rounds_beyond_a_million(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    for number in (999_999, 1_000_000, 1_000_001):
        round_path(tmp_path, number).touch()
    assert prune(tmp_path / "checkpoints", 1_000_001, 2) == [999_999]
    assert round_path(tmp_path, 1_000_000).name == "round-1000000.h5"


def test_only_abandoned_temporary_files_are_removed(run: Path) -> None:
    folder = run / "checkpoints"
    dead, living, foreign = (folder / f".round-000002.h5.{character * 16}.tmp" for character in "abz")
    outside = run / "outside"
    linked = folder / f".round-000002.h5.{'c' * 16}.tmp"
    for path in (dead, living, foreign, outside):
        path.write_bytes(b"part")
    linked.symlink_to(outside)
    with open(living, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        prune(folder, 1, 1)
        assert not dead.exists()
        assert living.exists()
    prune(folder, 1, 1)
    assert not living.exists()
    assert foreign.exists(), "not a name of ours"
    assert outside.exists()
    assert linked.is_symlink()


def test_a_file_is_locked_while_it_is_written(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def sweep_meanwhile(name: str, real: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        prune(run / "checkpoints", 1, 1)
        return real(*args)

    faulty = FaultyOs(1, sweep_meanwhile, only="posix_fallocate")
    replace_os(faulty, monkeypatch.setattr)
    write(round_path(run, 2), NEW)
    assert faulty.fired
    assert read(round_path(run, 2)).round == 2


def test_without_locks_nothing_is_swept(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    left = run / "checkpoints" / f".round-000002.h5.{'a' * 16}.tmp"
    left.touch()
    monkeypatch.setattr(files.fcntl, "flock", no_locks)
    commit(run, NEW)
    assert read(run / "checkpoint.h5").round == 2
    assert left.exists()


def test_no_descriptor_is_left_open(run: Path) -> None:
    def count() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    gc.collect()  # garbage of other tests may be collected at any time, which closes descriptors
    before = count()
    for _ in range(5):
        commit(run, NEW)
        read(run / "checkpoint.h5")
        with pytest.raises(InputOutputFailed):
            write(run / "none" / "x.h5", NEW)
    assert count() <= before
