"""Files of a folder: what systems leave there is no data, and splits are found under their usual names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.runs import SIMULATED, partrain

from partrain.data import load, read_spec
from partrain.data.fetch import POINTER, require_regular
from partrain.data.folders import files_below, folders_in, split_in
from partrain.data.images import ImagesSection
from partrain.errors import InputMissing


def picture(file: Path, grey: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((8, 8), grey, np.uint8)).save(file)


def test_what_systems_leave_is_no_data(tmp_path: Path) -> None:
    for name in ("cat/1.png", "cat/inner/2.PNG", "dog/3.png"):
        picture(tmp_path / name, 9)
    for name in ("cat/._1.png", "@eaDir/1.png", "__MACOSX/cat/1.png", ".ipynb_checkpoints/3.png", "cat/@eaDir/1.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"no picture")
    (tmp_path / "Thumbs.db").write_bytes(b"")
    assert [entry.name for entry in folders_in(tmp_path)] == ["cat", "dog"]
    assert [str(file.relative_to(tmp_path)) for file in files_below(tmp_path, {".png"})] == [
        "cat/1.png",
        "cat/inner/2.PNG",
        "dog/3.png",
    ]
    section = ImagesSection(kind="images", path=str(tmp_path), size=[8, 8])
    spec = read_spec(section, tmp_path)
    assert spec
    assert (spec.items, len(load(section, tmp_path).inputs)) == (3, 3)


def test_splits_are_found_under_their_usual_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for split, count in (("Training", 8), ("val", 3), ("TEST", 2)):
        for name in ("cat", "dog"):
            for number in range(count):
                picture(tmp_path / "photos" / split / name / f"{number}.png", 20 * number + 100 * (name == "dog"))
    found = [split_in(Path("photos"), split) for split in ("train", "validation", "test")]
    assert found == [Path("photos/Training"), Path("photos/val"), Path("photos/TEST")]
    said = partrain("init", "--from", "photos", "--no-schema")
    assert said.code == 0, said
    assert 'validation_path = "photos/val"' in Path("job.toml").read_text()
    shown = partrain("run", "job.toml", "--out", "run", "-q", "--set", "stop.rounds=1", "--set", SIMULATED)
    assert shown.code == 0, shown
    plan = partrain("plan", "job.toml").out
    assert "16 items to train with, 6 to judge with, 4 to test with" in plan


def test_images_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    for name in ("cat/1.png", "dog/2.png"):
        picture(tmp_path / name, 9)
    (tmp_path / "dog/3.HEIC").write_bytes(b"x")
    with pytest.raises(InputMissing, match=r"dog/3.HEIC: HEIC images cannot be read: convert them to JPEG or PNG"):
        read_spec(ImagesSection(kind="images", path=str(tmp_path), size=[8, 8]), tmp_path)


@pytest.mark.parametrize("name", ["t.csv", "a.npy", "cat/1.png"])
def test_a_pointer_of_git_lfs_is_no_data(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(POINTER + b"v1\noid sha256:4d7a\nsize 12345\n")
    with pytest.raises(InputMissing, match="is a pointer of Git LFS, not the data: git lfs pull"):
        files_below(tmp_path, {".png"}) if file.suffix == ".png" else require_regular(file)
