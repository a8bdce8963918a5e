"""Data sets written by `save_to_disk` of Hugging Face datasets, the optional extra `huggingface`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from partrain.data.arrays.classes import select_classes
from partrain.data.arrays.files import ArraySource
from partrain.data.arrays.saved import NOT_INSTALLED, SavedDataset, is_saved, load_saved, require_name
from partrain.data.arrays.sections import ArraySection
from partrain.data.base import Allocate, Dataset, Training, fingerprint_of
from partrain.data.fetch import Folder
from partrain.data.images import Size, image_shape
from partrain.data.tables.sections import Names
from partrain.errors import InputMissing


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


def read_spec(section: HuggingFace, folder: Path) -> None:
    """Return None: only `datasets`, which takes a second to import, knows the content of a set; see `data.read_spec`.

    Raises InputMissing if there is no saved set, or `datasets` is not installed.
    """
    if not is_saved(folder / section.path):
        advice = "`path` is a folder that `save_to_disk` of datasets wrote"
        raise InputMissing(f"{folder / section.path}: holds neither dataset_dict.json nor state.json: {advice}")
    spec = find_spec("datasets")
    if spec is None or spec.origin is None:  # a folder of this name without code has no origin
        raise InputMissing(NOT_INSTALLED)


def load(section: HuggingFace, folder: Path, allocate: Allocate, training: Training) -> Dataset:
    """Read the columns; see `data.load`."""
    from partrain.data.arrays.load import load_arrays

    read_spec(section, folder)
    parts = _parts(section, folder / section.path)
    data = load_arrays(section, _find_arrays(section, parts), allocate, training)
    names, outputs, codec = parts[""].classes(section.target), data.outputs, dict(data.codec)
    if data.kind.one_class and "classes" not in codec and names:
        codec["classes"], outputs = names, len(names)
        for prefix, part in parts.items():
            labels = getattr(data, f"{prefix}targets")
            if (unnamed := labels >= outputs).any():
                item = int(unnamed.argmax())
                where = f"{part.where(section.target)}: item {item}"
                raise InputMissing(f"{where} has the label {labels[item]}, but {outputs} classes have names")
    elif section.classes and names:
        codec.pop("renumbered", None)
        codec["classes"] = [names[item] if isinstance(item, int) else item for item in section.classes]
    elif data.kind.targets == "numbers" and outputs == 1:
        codec["targets"] = [section.target]
    if section.size:
        codec |= {"form": "images", "size": section.size, "channels": data.inputs.shape[1]}
    fingerprint = fingerprint_of((), memoryview(b""), codec | {"content": data.fingerprint})
    return replace(data, codec=codec, outputs=outputs, fingerprint=fingerprint)


def _find_arrays(section: HuggingFace, parts: Mapping[str, SavedDataset]) -> dict[str, ArraySource]:
    arrays = {}
    for prefix, part in parts.items():
        images = _are_images(section, part)
        arrays[f"{prefix}inputs"] = _images(section, part) if images else part.arrays(section.inputs, "inputs")
        arrays[f"{prefix}targets"] = part.arrays([section.target], "target")
    return select_classes(arrays, section.classes, parts[""].classes(section.target) if section.classes else None)


def _parts(section: HuggingFace, path: Path) -> dict[str, SavedDataset]:
    """Return the data set to train on, and under `test_` the one to test on, if any."""
    saved = load_saved(path)
    if isinstance(saved, dict):
        test = section.test_split or ("test" if "test" in saved and section.split != "test" else None)
        chosen = {"split": section.split} | ({"test_split": test} if test else {})
        for key, name in chosen.items():
            require_name(name, list(saved), f"{path}: no split `{name}`, which `{key}` asks for")
        return {key.removesuffix("split"): saved[name] for key, name in chosen.items()}
    if section.test_split or ("split" in section.model_fields_set and section.split != str(saved.data.split)):
        key = "test_split" if section.test_split else "split"
        raise InputMissing(f"{path}: is one set without splits: leave `{key}` out, or save a DatasetDict")
    return {"": saved}


def _are_images(section: HuggingFace, part: SavedDataset) -> bool:
    images = [name for name in section.inputs if part.is_images(name)]
    if images and len(section.inputs) > 1:
        raise InputMissing(f"{part.where(images[0])}: holds images, which are inputs alone: leave out the other columns")
    if not images and (idle := [key for key in ("size", "channels") if getattr(section, key)]):
        raise InputMissing(f"{part.where(section.inputs[0])}: holds no images: leave `{idle[0]}` out")
    return bool(images)


def _images(section: HuggingFace, part: SavedDataset) -> ArraySource:
    name, resize = section.inputs[0], bool(section.size)
    channels, *size = image_shape(next(part.images(name)))
    shape = (len(part.data), section.channels or channels, *(section.size or size))
    return ArraySource(part.where(name), part.path, "|u1", shape, None, lambda pixels: part.decode(name, pixels, resize=resize))
