"""The 512 bytes before the HDF5 image: format, length, digest, and the place of the manifest, which lists the places of all
arrays.

    partrain checkpoint 2
    length 426723                 bytes that follow the header
    sha256 5c1f...                of those bytes: `tail -c +513 FILE | sha256sum`
    manifest 424512 2211          its first byte, from the file's beginning, and its length
    run 9b0c...
    round 400
    seal 77de...                  SHA-256 of the lines above

Spaces fill the rest; the last byte is a newline. Each header has exactly one text, so the reader renders it again and compares.
SHA-256 finds accidents and careless edits. It is not a signature: a person who alters a file on purpose can recompute it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass

from partrain.checkpoint.content import RUN_ID, ContentRefused, OtherFormat

SIZE = 512
"""Bytes: the smallest user block of HDF5."""
FORMAT = 2
"""Format version of the whole file; it increases when older readers would misunderstand a newer file."""

_HDF5 = b"\x89HDF\r\n\x1a\n"
_FIRST = re.compile(rb"partrain checkpoint ([0-9]{1,9})\n")
_FIELDS = re.compile(
    rf"partrain checkpoint {FORMAT}\nlength ([0-9]{{1,19}})\nsha256 ([0-9a-f]{{64}})\n"
    rf"manifest ([0-9]{{1,19}}) ([0-9]{{1,19}})\nrun ({RUN_ID.pattern})\nround ([0-9]{{1,19}})\nseal [0-9a-f]{{64}}\n *\n"
)


@dataclass(frozen=True)
class Header:
    """The fields of a header."""

    length: int
    """Bytes after the header."""
    sha256: str
    """SHA-256 of the bytes after the header, in hex."""
    manifest: tuple[int, int]
    """First byte of the manifest, from the file's beginning, and its length in bytes."""
    run: str
    round: int

    @classmethod
    def of(cls, payload: bytes, manifest: tuple[int, int], run: str, number: int) -> Header:
        """Make the header of a payload."""
        return cls(len(payload), hashlib.sha256(payload).hexdigest(), manifest, run, number)

    def render(self) -> bytes:
        """Return the 512 bytes."""
        start, length = self.manifest
        lines = (
            f"partrain checkpoint {FORMAT}\nlength {self.length}\nsha256 {self.sha256}\n"
            f"manifest {start} {length}\nrun {self.run}\nround {self.round}\n"
        )
        sealed = f"{lines}seal {hashlib.sha256(lines.encode()).hexdigest()}\n"
        return sealed.ljust(SIZE - 1).encode() + b"\n"

    def check(self, payload: bytes | memoryview) -> None:
        """Refuse a payload that does not match this header."""
        if len(payload) != self.length:
            raise ContentRefused(f"{len(payload)} bytes follow the header, not {self.length}: the file is cut off or has grown")
        if not hmac.compare_digest(hashlib.sha256(payload).hexdigest(), self.sha256):
            raise ContentRefused("the content does not match its SHA-256: damaged or altered")


def parse(block: bytes) -> Header:
    """Parse the first 512 bytes of a file. Raises ContentRefused if any bit differs from `render`'s."""
    first = _FIRST.match(block)
    if first is None:
        raise ContentRefused(_foreign(block))
    if int(first[1]) != FORMAT:
        raise OtherFormat(f"this is format {int(first[1])}, and this version of partrain reads format {FORMAT}")
    fields = _FIELDS.fullmatch(block.decode("ascii", "replace"))
    if len(block) != SIZE or fields is None:
        raise ContentRefused("the header is damaged")
    length, sha256, start, size, run, number = fields.groups()
    header = Header(int(length), sha256, (int(start), int(size)), run, int(number))
    if header.render() != block:
        raise ContentRefused("the header is damaged")
    return header


def _foreign(block: bytes) -> str:
    if not block:
        return "the file is empty"
    if block.startswith(_HDF5):
        return "this HDF5 file was not written by partrain"
    return "this is not a partrain checkpoint, or its header is damaged"
