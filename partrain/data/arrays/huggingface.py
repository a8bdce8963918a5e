"""Sets that `save_to_disk` of Hugging Face datasets wrote; their Arrow files are read by pyarrow, the optional extra `huggingface`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator

from partrain.data.arrays.arrow import SavedSet, pictures, pieces, read_json, require
from partrain.data.arrays.files import ArraySource
from partrain.data.arrays.sections import ArraySection
from partrain.data.base import Allocate, Dataset, DatasetSpec, Training, digest
from partrain.data.fetch import Folder
from partrain.data.images import decode, form
from partrain.data.tables.sections import Names
from partrain.errors import InputMissing

if TYPE_CHECKING:
    from numpy.typing import NDArray


class HuggingFace(ArraySection):
    """A `Dataset` or `DatasetDict` as `save_to_disk` wrote it."""

    tests_by = ("test_split",)

    kind: Literal["huggingface"]
    path: Folder
    """The folder."""
    split: str = "train"
    """The part to train on; a folder may also hold one set alone."""
    test_split: str | None = None
    """The part to test on; default: `test`, if that is there."""
    inputs: Names = Field(min_length=1)
    """The column to learn from: numbers, lists of one length, or images; or several of numbers and lists, one behind the other."""
    target: str
    """The column to learn: whole numbers, names of classes being known or not, texts, which are such names, or others for a regression."""
    size: list[Annotated[int, Field(ge=1, le=10_000)]] | None = Field(None, min_length=2, max_length=2)
    """Height and width that all images are resized to; default: those of the first, which all must have."""
    channels: Literal[1, 3] | None = None
    """1: grey; 3: red, green, blue; default: as the first image is."""

    @model_validator(mode="after")
    def _without_contradiction(self) -> HuggingFace:
        if self.target in self.inputs:
            raise ValueError(f"`{self.target}` is the target: it cannot be an input")
        if self.test_split == self.split:
            raise ValueError(f"`test_split` is `{self.split}` too: test on other items than those trained on")
        return self

    def facts(self, folder: Path) -> DatasetSpec:
        known = super().facts(folder)
        names = self._parts(folder)[""].classes(self.target)
        return replace(known, outputs=len(names)) if names and known.task == "classification" else known

    def load(self, folder: Path, allocate: Allocate, training: Training) -> Dataset:
        data = super().load(folder, allocate, training)
        parts, outputs = self._parts(folder), data.outputs
        codec = dict(data.codec)
        if data.task == "classification" and "classes" not in codec and (names := parts[""].classes(self.target)):
            codec["classes"], outputs = names, len(names)
            for prefix, part in parts.items():
                labels = getattr(data, f"{prefix}targets")
                if (unnamed := labels >= outputs).any():
                    item = int(unnamed.argmax())
                    where = f"{part.where(self.target)}: item {item}"
                    raise InputMissing(f"{where} has the label {labels[item]}, but {outputs} classes have names")
        elif data.task == "regression" and outputs == 1:
            codec["targets"] = [self.target]
        if self.size:
            codec |= {"form": "images", "size": self.size, "channels": data.inputs.shape[1]}
        mark = digest((), memoryview(b""), codec | {"content": data.fingerprint})
        return replace(data, codec=codec, outputs=outputs, fingerprint=mark)

    def found(self, folder: Path) -> dict[str, ArraySource]:
        found = {}
        for prefix, part in self._parts(folder).items():
            found[f"{prefix}inputs"] = self._images(part) if self._are_images(part) else part.numbers(self.inputs, "inputs")
            found[f"{prefix}targets"] = part.numbers([self.target], "target")
        return found

    def _parts(self, folder: Path) -> dict[str, SavedSet]:
        """What to train on, and under `test_` what to test on, if there is such."""
        base = folder / self.path
        if (base / "dataset_dict.json").is_file():
            splits = read_json(base / "dataset_dict.json").get("splits") or []
            test = self.test_split or ("test" if "test" in splits and self.split != "test" else None)
            chosen = {"split": self.split} | ({"test_split": test} if test else {})
            for key, name in chosen.items():
                require(name, splits, f"{base}: no split `{name}`, which `{key}` asks for")
            return {key.removesuffix("split"): SavedSet(base / name) for key, name in chosen.items()}
        if not (base / "state.json").is_file():
            advice = "`path` is a folder that `save_to_disk` of datasets wrote"
            raise InputMissing(f"{base}: holds neither dataset_dict.json nor state.json: {advice}")
        part = SavedSet(base)
        if self.test_split or ("split" in self.model_fields_set and self.split != part.state.get("_split")):
            key = "test_split" if self.test_split else "split"
            raise InputMissing(f"{base}: is one set without splits: leave `{key}` out, or save a DatasetDict")
        return {"": part}

    def _are_images(self, part: SavedSet) -> bool:
        images = [name for name in self.inputs if part.feature(name) == "Image"]
        if images and len(self.inputs) > 1:
            raise InputMissing(f"{part.where(images[0])}: holds images, which are inputs alone: leave out the other columns")
        if not images and (idle := [key for key in ("size", "channels") if getattr(self, key)]):
            raise InputMissing(f"{part.where(self.inputs[0])}: holds no images: leave `{idle[0]}` out")
        return bool(images)

    def _images(self, part: SavedSet) -> ArraySource:
        rows, where = part.column(self.inputs[0], "inputs"), part.where(self.inputs[0])
        channels, *size = form(next(pictures(rows, where)))

        def read(target: NDArray[Any]) -> None:
            for first, chunk in pieces(rows):
                files = list(pictures(chunk, where, first))
                if faults := decode(files, target[first : first + len(files)], resize=bool(self.size)):
                    raise InputMissing(faults[0])

        shape = (len(rows), self.channels or channels, *(self.size or size))
        return ArraySource(where, part.path, "|u1", shape, None, read)
