"""Folders of images: classes, pixels, and files that are no images."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError
from support.runs import partrain, write_job

from partrain.data import DatasetSpec, load, read_spec
from partrain.data.images import ImagesSection
from partrain.data.partition import Partition, split, training_of
from partrain.errors import InputMissing


def images(**more: Any) -> ImagesSection:
    return ImagesSection.model_validate({"kind": "images", "path": "pets", "size": [4, 6], **more})


def save(path: Path, pixels: Any, **more: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(pixels, "u1")).save(path, **more)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write two dogs and three cats; the n-th image has the single color (10 n, 20 n, 30 n)."""
    for number, name in enumerate(["dog/b", "dog/a", "cat/1", "cat/2", "cat/deep/3"]):
        save(tmp_path / "pets" / f"{name}.png", np.full((4, 6, 3), number) * [10, 20, 30])
    (tmp_path / "pets" / "cat" / "notes.txt").write_text("no image")
    return tmp_path


def test_pixels_and_labels_by_name(folder: Path) -> None:
    data = load(images(), folder)
    assert (data.inputs.shape, data.inputs.dtype, data.scale) == ((5, 3, 4, 6), np.uint8, 1 / 255)
    assert data.codec["classes"] == ["cat", "dog"]
    assert data.targets.tolist() == [0, 0, 0, 1, 1]
    assert data.inputs[:, 0, 0, 0].tolist() == [20, 30, 40, 10, 0]  # cat/1, cat/2, cat/deep/3, dog/a, dog/b
    assert data.inputs[0, :, 3, 5].tolist() == [20, 40, 60]
    assert read_spec(images(), folder) == DatasetSpec(5, 0, (3, 4, 6), "classification", 2, classes=("cat", "dog"))


def test_grey(folder: Path) -> None:
    data = load(images(channels=1), folder)
    assert data.inputs.shape == (5, 1, 4, 6)
    assert data.inputs[0, 0, 0, 0] == round(0.299 * 20 + 0.587 * 40 + 0.114 * 60)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr"])
def test_every_mode_of_a_picture_and_none_of_its_transparency(folder: Path, mode: str, channels: int) -> None:
    picture = Image.new("RGB", (6, 4), (255, 255, 255)).convert(mode)
    if mode in ("LA", "PA", "RGBA"):
        picture.putalpha(Image.new("L", (6, 4), 0))
    path = folder / "pets" / "cat" / ("1.tif" if mode in ("CMYK", "YCbCr", "PA") else "1.png")
    (folder / "pets" / "cat" / "1.png").unlink()
    picture.save(path, **({"transparency": picture.getpixel((0, 0))} if mode in ("P", "L") and path.suffix == ".png" else {}))
    assert (load(images(channels=channels), folder).inputs[0] == 255).all()


def test_what_is_not_of_the_size_is_resized(folder: Path) -> None:
    save(folder / "pets" / "dog" / "c.png", np.full((40, 10), 77))
    data = load(images(), folder)
    assert (data.inputs[5] == 77).all()


def test_a_photograph_taken_upright_is_upright(folder: Path) -> None:
    upright = Image.fromarray(np.repeat(np.uint8([[0] * 4, [255] * 4]), [3, 3], 0))
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter, clockwise
    upright.save(folder / "pets" / "dog" / "c.png", exif=exif)
    assert (load(images(channels=1), folder).inputs[5, 0] == [255] * 3 + [0] * 3).all()


def test_train_and_test_side_by_side(folder: Path, tmp_path: Path) -> None:
    (folder / "pets").rename(folder / "train")
    (folder / "pets").mkdir()
    (folder / "train").rename(folder / "pets" / "train")
    save(folder / "pets" / "test" / "dog" / "x.png", np.full((4, 6), 9))
    data = load(images(), folder)
    assert data.test_targets is not None
    assert (len(data.inputs), data.test_targets.tolist()) == (5, [1])
    assert read_spec(images(), folder) == data.spec
    save(folder / "more" / "cat" / "x.png", np.full((4, 6), 9))
    apart = load(images(test_path="more"), folder)
    assert apart.test_targets is not None
    assert apart.test_targets.tolist() == [0]


def test_a_folder_of_held_out_images(folder: Path) -> None:
    save(folder / "more" / "dog" / "x.png", np.full((4, 6), 200))
    section = images(validation_path="more", standardise="channel")
    data = load(section, folder, training=training_of(section, Partition(), 0))
    assert read_spec(section, folder) == data.spec
    assert [part.tolist() for part in split(data, section, "given", 0)] == [[0, 1, 2, 3, 4], [5]]
    assert data.targets.tolist() == [0, 0, 0, 1, 1, 1]
    assert data.codec["mean"] == load(images(standardise="channel"), folder).codec["mean"], "of the training images alone"
    with pytest.raises(ValidationError, match="`validation_path` and `validation` both choose the held-out items"):
        images(validation_path="more", validation=2)


def test_what_does_not_decode_is_named_and_counted(folder: Path) -> None:
    (folder / "pets" / "cat" / "2.png").write_bytes((folder / "pets" / "cat" / "2.png").read_bytes()[:50])
    with pytest.raises(InputMissing, match=r"pets/cat/2\.png: cannot be decoded: [^/]*$"):
        load(images(), folder)
    (folder / "pets" / "dog" / "a.png").write_bytes(b"GIF89a")
    (folder / "pets" / "dog" / "b.png").write_bytes(b"")
    with pytest.raises(InputMissing, match=r"pets/cat/2\.png: .*, and 2 more cannot either$"):
        load(images(), folder)


def test_deep_pixels_are_refused(folder: Path) -> None:
    Image.fromarray(np.full((4, 6), 40_000, "u2")).save(folder / "pets" / "cat" / "1.png")
    with pytest.raises(InputMissing, match=r"cat/1\.png: cannot be decoded: its pixels are of mode I;16, not of 8 bits"):
        load(images(), folder)


@pytest.mark.parametrize(("extra", "message"), [
    ("pets/fish/", r"pets/fish: no images in it$"),
    ("test/fish/x.png", r"test/fish: no training image has the class `fish`"),
])  # fmt: skip
def test_classes_that_will_not_do(folder: Path, extra: str, message: str) -> None:
    path = folder / extra
    (path if extra.endswith("/") else path.parent).mkdir(parents=True)
    for ask in (read_spec, load):
        with pytest.raises(InputMissing, match=message):
            ask(images(test_path="test") if "test" in extra else images(), folder)


def test_one_class_is_none(folder: Path) -> None:
    with pytest.raises(InputMissing, match="expected a folder for each of at least two classes, found 0"):
        read_spec(images(path="pets/dog"), folder)
    with pytest.raises(InputMissing, match="No such file or directory"):
        read_spec(images(path="cats"), folder)


def test_without_pillow(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert read_spec(images(), folder) is not None
    with pytest.raises(InputMissing, match=r"^images need Pillow, which is not installed: pip install 'partrain\[images\]'$"):
        load(images(), folder)


def test_sizes_are_two(folder: Path) -> None:
    with pytest.raises(ValidationError, match="size"):
        images(size=[28])


def test_one_number_is_a_square_and_other_lists_are_explained(tmp_path: Path) -> None:
    section = ImagesSection.model_validate({"kind": "images", "path": "d", "size": 48})
    assert section.size == [48, 48]
    for wrong in ([48], [1, 2, 3]):
        with pytest.raises(ValueError, match=r"`size`: expected \[height, width\], or one number for a square"):
            ImagesSection.model_validate({"kind": "images", "path": "d", "size": wrong})
    job = write_job(tmp_path, 'dataset={kind="images", path="d", size=[48]}')
    assert "expected [height, width], or one number for a square" in partrain("validate", job).out
