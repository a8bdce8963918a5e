"""Data sets written by `save_to_disk` of Hugging Face datasets. pyarrow reads them, the optional extra `huggingface`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from partrain.data.arrays.arrow import SavedDataset, chunks, images, read_json, require_name
from partrain.data.arrays.classes import select_classes
from partrain.data.arrays.files import ArraySource
from partrain.data.arrays.headers import spec_of
from partrain.data.arrays.sections import ArraySection
from partrain.data.base import Allocate, Dataset, DatasetSpec, Training, fingerprint_of
from partrain.data.fetch import Folder
from partrain.data.images import Size, decode, image_shape
from partrain.data.tables.sections import Names
from partrain.errors import InputMissing

if TYPE_CHECKING:
    from numpy.typing import NDArray


class HuggingFace(ArraySection):
    """A folder that `save_to_disk` of Hugging Face datasets wrote: a `Dataset` or `DatasetDict`.

    Needs `pip install 'partrain[huggingface]'`, for images also `partrain[images]`.
    """

    test_keys = ("test_split",)

    kind: Literal["huggingface"]
    path: Folder
    """Folder of the data set, relative to the job."""
    split: str = "train"
    """The split to train on. A folder may also hold one data set without splits."""
    test_split: str | None = None
    """The split to test on; default: `test`, if there is one."""
    inputs: Names = Field(min_length=1)
    """The input column, or several: numbers, lists of one length, or images. Several columns of numbers are concatenated."""
    target: str
    """The column of targets: whole numbers and texts are classes, other numbers are a regression."""
    size: Size | None = None
    """Height and width to which all images are resized, as [height, width], or one number for a square. Default: the size of the
    first image, which all others must have."""
    channels: Literal[1, 3] | None = None
    """1: grey; 3: red, green, blue. Default: as in the first image."""

    @model_validator(mode="after")
    def _without_contradiction(self) -> HuggingFace:
        if self.target in self.inputs:
            raise ValueError(f"`{self.target}` is the target: it cannot be an input")
        if self.test_split == self.split:
            raise ValueError(f"`test_split` is `{self.split}` too: test on other items than those trained on")
        return self


def read_spec(section: HuggingFace, folder: Path) -> DatasetSpec:
    """Read the headers of the files; see `data.read_spec`."""
    known = spec_of(section, _find_arrays(section, folder))
    names = _parts(section, folder)[""].classes(section.target)
    if not names or known.task != "classification":
        return known
    classes = _names_of(section, names)
    return replace(known, outputs=len(classes), classes=tuple(classes))


def load(section: HuggingFace, folder: Path, allocate: Allocate, training: Training) -> Dataset:
    """Map or read the columns; see `data.load`."""
    from partrain.data.arrays.load import load_arrays

    data = load_arrays(section, _find_arrays(section, folder), allocate, training)
    parts, outputs = _parts(section, folder), data.outputs
    codec = dict(data.codec)
    if data.task == "classification" and "classes" not in codec and (names := parts[""].classes(section.target)):
        codec["classes"], outputs = names, len(names)
        for prefix, part in parts.items():
            labels = getattr(data, f"{prefix}targets")
            if (unnamed := labels >= outputs).any():
                item = int(unnamed.argmax())
                where = f"{part.where(section.target)}: item {item}"
                raise InputMissing(f"{where} has the label {labels[item]}, but {outputs} classes have names")
    elif section.classes and (names := parts[""].classes(section.target)):
        codec.pop("renumbered", None)
        codec["classes"] = _names_of(section, names)
    elif data.task == "regression" and outputs == 1:
        codec["targets"] = [section.target]
    if section.size:
        codec |= {"form": "images", "size": section.size, "channels": data.inputs.shape[1]}
    mark = fingerprint_of((), memoryview(b""), codec | {"content": data.fingerprint})
    return replace(data, codec=codec, outputs=outputs, fingerprint=mark)


def _names_of(section: HuggingFace, names: Sequence[str]) -> list[str]:
    """Return the names of the classes that are kept."""
    return [names[one] if isinstance(one, int) else one for one in section.classes or range(len(names))]


def _find_arrays(section: HuggingFace, folder: Path) -> dict[str, ArraySource]:
    found = {}
    parts = _parts(section, folder)
    for prefix, part in parts.items():
        found[f"{prefix}inputs"] = (
            _images(section, part) if _are_images(section, part) else part.numbers(section.inputs, "inputs")
        )
        found[f"{prefix}targets"] = part.numbers([section.target], "target")
    return select_classes(found, section.classes, parts[""].classes(section.target) if section.classes else None)


def _parts(section: HuggingFace, folder: Path) -> dict[str, SavedDataset]:
    """Return the data set to train on, and under `test_` the one to test on, if any."""
    base = folder / section.path
    if (base / "dataset_dict.json").is_file():
        splits = read_json(base / "dataset_dict.json").get("splits") or []
        test = section.test_split or ("test" if "test" in splits and section.split != "test" else None)
        chosen = {"split": section.split} | ({"test_split": test} if test else {})
        for key, name in chosen.items():
            require_name(name, splits, f"{base}: no split `{name}`, which `{key}` asks for")
        return {key.removesuffix("split"): SavedDataset(base / name) for key, name in chosen.items()}
    if not (base / "state.json").is_file():
        advice = "`path` is a folder that `save_to_disk` of datasets wrote"
        raise InputMissing(f"{base}: holds neither dataset_dict.json nor state.json: {advice}")
    part = SavedDataset(base)
    if section.test_split or ("split" in section.model_fields_set and section.split != part.state.get("_split")):
        key = "test_split" if section.test_split else "split"
        raise InputMissing(f"{base}: is one set without splits: leave `{key}` out, or save a DatasetDict")
    return {"": part}


def _are_images(section: HuggingFace, part: SavedDataset) -> bool:
    images = [name for name in section.inputs if part.feature(name) == "Image"]
    if images and len(section.inputs) > 1:
        raise InputMissing(f"{part.where(images[0])}: holds images, which are inputs alone: leave out the other columns")
    if not images and (idle := [key for key in ("size", "channels") if getattr(section, key)]):
        raise InputMissing(f"{part.where(section.inputs[0])}: holds no images: leave `{idle[0]}` out")
    return bool(images)


def _images(section: HuggingFace, part: SavedDataset) -> ArraySource:
    rows, where = part.column(section.inputs[0], "inputs"), part.where(section.inputs[0])
    channels, *size = image_shape(next(images(rows, where)))

    def read(target: NDArray[Any]) -> None:
        for first, chunk in chunks(rows):
            files = list(images(chunk, where, first))
            if faults := decode(files, target[first : first + len(files)], resize=bool(section.size)):
                raise InputMissing(faults[0])

    shape = (len(rows), section.channels or channels, *(section.size or size))
    return ArraySource(where, part.path, "|u1", shape, None, read)
