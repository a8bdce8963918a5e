"""Folders of images, one folder for each class. Pillow decodes them, the optional extra `images`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from partrain.config.problems import did_you_mean
from partrain.data.augment import ImageChanges
from partrain.data.base import (
    HELD_OUT,
    Allocate,
    Dataset,
    DatasetInfo,
    DatasetSpec,
    HasValidationPath,
    SelectsClasses,
    Training,
    WrongSetting,
    fingerprint_of,
    lay_out,
    views,
)
from partrain.data.fetch import Folder
from partrain.data.folders import files_below, folders_in, split_in
from partrain.data.forms import PICTURES
from partrain.errors import InputMissing
from partrain.system.cores import usable_cores
from partrain.tasks.kinds import CLASSIFICATION

if TYPE_CHECKING:
    from numpy.typing import NDArray

UNREAD = {".heic", ".heif", ".avif"}
"""Suffixes of images that cannot be read."""


def _both_sides(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return [value, value]
    if isinstance(value, list) and len(value) != 2:
        raise ValueError("`size`: expected [height, width], or one number for a square")
    return value


Size = Annotated[
    list[Annotated[int, Field(ge=1, le=10_000)]],
    BeforeValidator(_both_sides, int | list[int]),
    Field(min_length=2, max_length=2),
]


class ImagesSection(SelectsClasses, HasValidationPath, ImageChanges):
    """Images, with one folder for each class, or with such folders in `train` and `test`. Bytes are scaled to [0, 1].

    Needs `pip install 'partrain[images]'`.
    """

    kind: Literal["images"]
    path: Folder
    """The folder, relative to the job."""
    test_path: Folder | None = None
    """A folder of test images, with the same classes. Default: `test` next to `train`, if it exists."""
    validation_path: Folder | None = None
    """A folder of held-out images, with the same classes, instead of `validation` and `fold`."""
    size: Size
    """Height and width to which all images are resized, as [height, width], or one number for a square."""
    channels: Literal[1, 3] = 3
    """1: grey; 3: red, green, blue. Transparency is ignored."""
    standardise: Literal["channel"] | None = None
    """`channel`: subtract the mean of each channel and divide by its standard deviation, both of the training images."""


def read_spec(section: ImagesSection, folder: Path) -> DatasetSpec:
    """Find the images; see `data.read_spec`."""
    folders = _ImageFolders(section, folder)
    shape = (section.channels, *section.size)
    return DatasetSpec(
        len(folders.training) + len(folders.held_out),
        len(folders.tests),
        shape,
        CLASSIFICATION,
        len(folders.classes),
        classes=tuple(folders.classes),
        held_out=len(folders.held_out) if section.validation_path else None,
    )


def load(section: ImagesSection, folder: Path, allocate: Allocate, training: Training) -> Dataset:
    """Decode the images; see `data.load`."""
    folders = _ImageFolders(section, folder)
    parts = {"": folders.training + folders.held_out} | ({"test_": folders.tests} if folders.tests else {})
    slots = lay_out(
        {
            f"{prefix}{role}": (dtype, (len(files), *shape))
            for prefix, files in parts.items()
            for role, (dtype, shape) in {
                "inputs": ("uint8", (section.channels, *section.size)),
                "targets": ("int64", ()),
            }.items()
        }
        | ({HELD_OUT: ("int64", (len(folders.held_out),))} if section.validation_path else {})
    )
    buffer = allocate(slots[-1].end)
    arrays = views(slots, buffer)
    if section.validation_path:
        arrays[HELD_OUT][:] = range(len(folders.training), len(parts[""]))
    faults: list[str] = []
    for prefix, files in parts.items():
        faults += decode([file for file, _ in files], arrays[f"{prefix}inputs"])
        arrays[f"{prefix}targets"][:] = [label for _, label in files]
    if faults:
        more = f", and {len(faults) - 1:,} more cannot either" if len(faults) > 1 else ""
        raise InputMissing(f"{faults[0]}{more}")
    codec = {"form": "images", "classes": folders.classes, "size": section.size, "channels": section.channels}
    fingerprint = fingerprint_of(slots, buffer, codec)
    return DatasetInfo(slots, CLASSIFICATION, len(folders.classes), 1 / 255, fingerprint, codec=codec).open(buffer)


class _ImageFolders:
    """The images of a data set, in the order of their names."""

    def __init__(self, section: ImagesSection, folder: Path) -> None:
        base = folder / section.path
        train = split_in(base, "train") or base
        test = split_in(base, "test") if train != base else None
        if section.test_path is not None:
            test = folder / section.test_path
        self.classes = sorted(entry.name for entry in folders_in(train))
        if len(self.classes) < 2:
            raise InputMissing(f"{train}: expected a folder for each of at least two classes, found {len(self.classes)}")
        self._left_out: set[str] = set()
        if section.classes:
            chosen = list(map(str, section.classes))
            if lacking := [name for name in chosen if name not in self.classes]:
                problem, near = f"`classes`: {train} has no folder `{lacking[0]}`", did_you_mean(lacking[0], self.classes)
                raise WrongSetting("classes", problem, f"did you mean `{near}`?" if near else "name folders in it")
            self._left_out = set(self.classes) - set(chosen)
            self.classes = chosen
        self.training = list(self._labelled(train))
        self.tests = list(self._labelled(test)) if test else []
        self.held_out = list(self._labelled(folder / section.validation_path)) if section.validation_path else []

    def _labelled(self, base: Path) -> Iterator[tuple[Path, int]]:
        for entry in (entry for entry in folders_in(base) if entry.name not in self._left_out):
            if entry.name not in self.classes:
                raise InputMissing(f"{entry}: no training image has the class `{entry.name}`")
            if not (files := images_below(entry)):
                raise InputMissing(f"{entry}: no images in it")
            yield from ((file, self.classes.index(entry.name)) for file in files)


def images_below(folder: Path) -> list[Path]:
    """Return the images in a folder and its subfolders, sorted.

    InputMissing for an unreadable image format: none is left out silently.
    """
    files = files_below(folder, {*PICTURES, *UNREAD})
    if unread := [file for file in files if file.suffix.lower() in UNREAD]:
        raise InputMissing(f"{unread[0]}: {unread[0].suffix[1:].upper()} images cannot be read: convert them to JPEG or PNG")
    return files


def decode(files: Sequence[Path | IO[bytes]], pixels: NDArray[Any], *, resize: bool = True) -> list[str]:
    """Decode images into `pixels` (n, channels, height, width), on all cores.

    Images of another size are resized, or else reported as faults.

    Returns:
        A message for each image that cannot be decoded.
    """
    import warnings

    import numpy as np

    Image, ImageOps = _pillow()
    channels, height, width = pixels.shape[1:]

    def one(number: int) -> str | None:
        try:
            with Image.open(files[number]) as opened:
                _require_bytes(opened)
                image = ImageOps.exif_transpose(opened).convert("L" if channels == 1 else "RGB")
            if image.size != (width, height):
                if not resize:
                    return (
                        f"{files[number]}: is {image.width} x {image.height} pixels, expected {width} x {height}; resize it first"
                    )
                image = image.resize((width, height), Image.Resampling.BILINEAR)
            pixels[number] = np.asarray(image).reshape(height, width, channels).transpose(2, 0, 1)
        except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
            return _undecodable(files[number], error)
        return None

    with warnings.catch_warnings(), ThreadPoolExecutor(usable_cores()) as pool:
        warnings.simplefilter("ignore")
        return [fault for fault in pool.map(one, range(len(files))) if fault]


def image_shape(file: Path | IO[bytes]) -> tuple[int, int, int]:
    """Return channels, height and width of an upright image; InputMissing if it cannot be decoded."""
    import warnings

    Image, ImageOps = _pillow()
    try:
        with warnings.catch_warnings(action="ignore"), Image.open(file) as opened:
            _require_bytes(opened)
            width, height = ImageOps.exif_transpose(opened).size
            return 1 if opened.mode in ("1", "L", "LA") else 3, height, width
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
        raise InputMissing(_undecodable(file, error)) from None


def check_headers(files: Sequence[Path]) -> None:
    """Read the headers of images; InputMissing if one has a form that cannot be used."""
    import warnings

    Image, _ = _pillow()
    for file in files:
        try:
            with warnings.catch_warnings(action="ignore"), Image.open(file) as opened:
                _require_bytes(opened)
        except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
            raise InputMissing(_undecodable(file, error)) from None


def _undecodable(file: Path | IO[bytes], error: Exception) -> str:
    return f"{file}: cannot be decoded: {str(error).replace(repr(str(file)), 'the file')}"


def _require_bytes(opened: Any) -> None:
    """Raise ValueError for an image whose pixels have more than 8 bits."""
    if opened.mode[0] in "IF":
        raise ValueError(f"its pixels are of mode {opened.mode}, not of 8 bits: save it with 8 bits, or the numbers as NPY")


def _pillow() -> tuple[Any, Any]:
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise InputMissing("images need Pillow, which is not installed: pip install 'partrain[images]'") from None
    return Image, ImageOps
