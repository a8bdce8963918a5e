"""Images as items: gray (1, height, width) or RGB (3, height, width), in [0, 1]."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from partrain.data.forms import PICTURES
from partrain.data.images import decode, images_below
from partrain.errors import InputMissing
from partrain.inference.inputs.sample import Sample, Wanted, of_inputs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from partrain.inference.network import TrainedNetwork


def read_items(network: TrainedNetwork, path: Path, kind: str, wanted: Wanted) -> tuple[Sample, NDArray[Any] | None]:
    """Read images as items; see `DataForm.items`."""
    pixels, labels, names = read_images(network, path, labeled=wanted.targets)
    return of_inputs(network, network.codec.standardize(pixels), path, names), labels


def read_images(network: TrainedNetwork, path: Path, *, labeled: bool) -> tuple[NDArray[Any], NDArray[Any] | None, list[str]]:
    """Read the images of a folder, sorted by name, or a single one. If `labeled`, their folders are named after their classes.

    A network trained on a folder of images accepts all sizes: images are resized as in training. Other networks accept one size.
    """
    shape = tuple(network.record.input)
    if len(shape) != 3 or shape[0] not in (1, 3):
        raise InputMissing(f"{path}: this network does not take images: its items have the shape {shape}")
    files = images_below(path) if path.is_dir() else [path]
    if not files:
        raise InputMissing(f"{path}: contains no images ({', '.join(sorted(PICTURES))})")
    pixels = np.empty((len(files), *shape), np.uint8)
    if faults := decode(files, pixels, resize=network.codec.resizes):
        raise InputMissing(faults[0] + (f", and {len(faults) - 1:,} more cannot either" if len(faults) > 1 else ""))
    labels = np.array([_label(network, file, path) for file in files]) if labeled and network.kind.one_class else None
    return pixels * np.float32(1 / 255), labels, [str(file.relative_to(path)) if path.is_dir() else file.name for file in files]


def _label(network: TrainedNetwork, file: Path, root: Path) -> int:
    """Return an image's label: the first folder below `root`, as in training, or `root` itself if the image is directly in it."""
    names = network.codec.classes or [str(label) for label in range(network.record.outputs)]
    inner = file.relative_to(root).parts[:-1]
    name = inner[0] if inner else (root if root.is_dir() else root.parent).resolve().name
    if name not in names:
        raise InputMissing(f"{file}: its folder `{name}` is not one of the classes {', '.join(names[:10])}")
    return names.index(name)
