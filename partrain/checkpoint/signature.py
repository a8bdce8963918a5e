"""Signatures of a user's runs: later commands run their code and read their files without `--trust-code`.

`job.hmac` in a run folder has a line for each job that was trained there: HMAC-SHA256 of the job's text and folder under a key that
only the user can read. A signature proves that this user has run this job, with code and files of this folder, before.
Checkpoints have no signature: equal states are equal bytes.
"""

from __future__ import annotations

import hmac
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from partrain.record.file_names import SIGNATURES
from partrain.system.regular_file import open_to_append, read_regular

KEY_BYTES = 32


def key_path() -> Path | None:
    """Return the path of the user's key; None if the user has no home folder."""
    try:
        return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "partrain" / "key"
    except RuntimeError:
        return None


def sign(run_folder: Path, job: str, folder: Path) -> None:
    """Add the signature of a job to its run folder. Without a key or a writable folder, the run stays unsigned."""
    key = _key() or _new_key()
    if key is None:
        return
    line, path = _signature(key, job, folder), run_folder / SIGNATURES
    with suppress(OSError):
        if line not in _lines(path):
            with open(open_to_append(path), "a", encoding="ascii") as file:
                file.write(line + "\n")


def is_signed(run_folder: Path | None, job: str, folder: Path) -> bool:
    """Return whether this user has trained the job, whose relative paths start from `folder`, in a run folder."""
    key = _key()
    if run_folder is None or key is None:
        return False
    expected = _signature(key, job, folder)
    return any(hmac.compare_digest(expected, line) for line in _lines(run_folder / SIGNATURES))


def _signature(key: bytes, job: str, folder: Path) -> str:
    return hmac.digest(key, b"\0".join((b"partrain job", os.fsencode(folder.resolve()), job.encode())), "sha256").hex()


def _lines(path: Path) -> list[str]:
    try:
        return read_regular(path).decode("ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return []


def _key() -> bytes | None:
    """Read the key; None without a key that only this user can read."""
    path = key_path()
    with suppress(OSError):
        if path is not None:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                status = os.fstat(descriptor)
                private = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077
                key = os.read(descriptor, KEY_BYTES + 1) if private else b""
            finally:
                os.close(descriptor)
            return key if len(key) == KEY_BYTES else None
    return None


def _new_key() -> bytes | None:
    """Make the key. If two processes do so at the same time, one wins."""
    path = key_path()
    with suppress(OSError):
        if path is not None:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            own = path.with_name(f".key.{os.getpid()}.{secrets.token_hex(8)}")
            descriptor = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, secrets.token_bytes(KEY_BYTES))
                os.close(descriptor)
                os.link(own, path)
            finally:
                own.unlink()
    return _key()
