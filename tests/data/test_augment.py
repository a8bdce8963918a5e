"""Augmentation and standardization of images by channel."""

import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from support.lab import take
from support.runs import SIMULATED, newest, partrain, resume, round_file, summary, train, write_job

from partrain.data import load
from partrain.data.arrays.sections import Npz
from partrain.data.augment import TRANSFORMS
from partrain.data.transforms import ImageAugment
from partrain.errors import BadJob
from partrain.training.batches import Batches, Samples
from partrain.training.feed import Feed

pytestmark = pytest.mark.skipif(find_spec("torchvision") is None, reason="needs torchvision")


def images(folder: Path, count: int = 90, channels: int = 3) -> NDArray[np.uint8]:
    draw = np.random.default_rng(0)
    found = draw.integers(0, 256, (count, channels, 8, 8)).astype("u1")
    found[:, 0] //= 2
    np.savez(
        folder / "images.npz", inputs=found, targets=np.arange(count) % 2, test_inputs=found[:9], test_targets=np.arange(9) % 2
    )
    return found


def feed(block: int, augment: Any, position: int = 0) -> list[torch.Tensor]:
    """The batches of a worker whose blocks hold this many bytes."""
    inputs = torch.rand(40, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    batches = Batches(np.arange(40), 8, 3, seed=5, rank=1)
    batches.position = position
    made = Feed(Samples(inputs, torch.arange(40), 1.0), batches, reuse=False, augment=augment)
    made._block_items = block
    batches.begin(1)
    made.begin()
    return [inputs.clone() for inputs, _ in take(made, 7)]


@pytest.mark.parametrize("name", TRANSFORMS)
def test_each_transform_changes_images_and_keeps_their_form(name: str) -> None:
    pixels = torch.rand(6, 3, 12, 10, generator=torch.Generator().manual_seed(1))
    augment = ImageAugment([name], (3, 12, 10))
    state = torch.get_rng_state()
    changed = augment(pixels, 4)
    assert torch.equal(torch.get_rng_state(), state)
    assert (changed.shape, changed.dtype) == (pixels.shape, pixels.dtype)
    assert not torch.equal(changed, pixels)
    assert torch.equal(changed, augment(pixels, 4))
    assert not torch.equal(changed, augment(pixels, 5))


def test_each_image_has_draws_of_its_own() -> None:
    same = torch.rand(3, 8, 8, generator=torch.Generator().manual_seed(1)).expand(40, 3, 8, 8)
    changed = ImageAugment(["flip"], (3, 8, 8))(same, 0)
    flipped = [torch.equal(one, same[0].flip(-1)) for one in changed]
    assert 8 < sum(flipped) < 32


def test_blocks_and_interruptions_change_no_batch() -> None:
    augment = ImageAugment(["crop", "flip", {"name": "rotation", "degrees": 10}], (3, 8, 8))
    whole = feed(1000, augment)
    for one, other in zip(whole, feed(8, augment), strict=True):
        assert torch.equal(one, other)
    for one, other in zip(whole[3:], feed(1000, augment, position=24), strict=False):
        assert torch.equal(one, other)
    assert not torch.equal(whole[0], feed(1000, None)[0])


@pytest.mark.parametrize(("entry", "message"), [
    ("flop", 'names "flop", which torchvision.transforms.v2 does not have'),
    ({"name": "rotation", "degres": 10}, '"rotation" has no parameter `degres`'),
    ({"name": "RandomErasing", "p": 0.1, "scal": 2}, '"RandomErasing" has no parameter `scal`'),
])  # fmt: skip
def test_unknown_names_and_parameters(entry: Any, message: str) -> None:
    with pytest.raises(BadJob, match=f"{re.escape(message)}; did you mean"):
        ImageAugment(["blur", entry], (3, 8, 8))


def test_transforms_that_do_not_fit_are_named() -> None:
    with pytest.raises(BadJob, match=r"RandomRotation for images \(3, 8, 8\): .*degrees"):
        ImageAugment([{"name": "rotation", "degrees": -3}], (3, 8, 8))
    with pytest.raises(BadJob, match="keep their shape and type"):
        ImageAugment([{"name": "crop", "size": [4, 4]}], (3, 8, 8))


def test_channels_are_standardised_by_batch_and_bytes_stay_bytes(tmp_path: Path) -> None:
    raw = images(tmp_path) / 255
    section = Npz(kind="npz", path="images.npz", standardise="channel")
    data = load(section, tmp_path)
    assert data.inputs.dtype == np.uint8
    assert data.channel_scale is not None
    mean, std = data.channel_scale
    assert mean == pytest.approx(raw.mean((0, 2, 3)))
    assert std == pytest.approx(raw.std((0, 2, 3)))
    samples = Samples(torch.from_numpy(data.inputs), torch.from_numpy(data.targets), data.scale, channel_scale=data.channel_scale)
    expected = (raw - np.array(mean)[:, None, None]) / np.array(std)[:, None, None]
    for found in (
        samples.batch(torch.arange(90))[0],
        samples.part(slice(0, 90))[0],
        samples.batch(torch.arange(90), samples.buffer(90))[0],
    ):
        assert np.allclose(found.numpy(), expected, atol=1e-5)
    given = load(Npz(kind="npz", path="images.npz", mean=[0.5] * 3, deviation=[0.25] * 3), tmp_path)
    assert given.channel_scale == ([0.5] * 3, [0.25] * 3)
    assert given.fingerprint != data.fingerprint != load(Npz(kind="npz", path="images.npz"), tmp_path).fingerprint


@pytest.mark.slow
def test_only_training_items_count_and_predict_does_the_same(tmp_path: Path) -> None:
    images(tmp_path)
    sets = ['dataset={kind="npz", path="images.npz", standardise="channel", validation=20}', 'model={name="cnn", channels=[4]}']
    run = train(tmp_path, SIMULATED, *sets, 'optimizer={name="adam", lr=0.01, batch_size=8}', "stop.rounds=2")
    judged = json.loads(partrain("evaluate", run, "--json", "--split", "test").out)["test"]
    assert judged["loss"] == pytest.approx(summary(run)["test"]["loss"], rel=1e-6)
    held = np.load(tmp_path / "images.npz")
    np.savez(tmp_path / "new.npz", inputs=held["test_inputs"], targets=held["test_targets"])
    new = json.loads(partrain("evaluate", run, "-i", tmp_path / "new.npz", "--json").out)
    assert new[str(tmp_path / "new.npz")]["loss"] == pytest.approx(judged["loss"], rel=1e-5)


@pytest.mark.slow
def test_an_augmented_run_resumes_to_the_bit_and_is_judged_on_plain_images(tmp_path: Path) -> None:
    images(tmp_path)
    data = 'kind="npz", path="images.npz", standardise="channel", validation=20'
    learns = ['model={name="cnn", channels=[4]}', 'optimizer={name="adam", lr=0.01, batch_size=8}']
    sets = [f'dataset={{{data}, augment=["crop", {{name="flip", p=0.3}}, "erase"]}}', *learns]
    run = train(tmp_path, SIMULATED, *sets)
    resume(round_file(run, 2), "--out", tmp_path / "again")
    assert newest(tmp_path / "again") == newest(run)
    judged = json.loads(partrain("evaluate", run, "--json", "--split", "validation").out)["validation"]
    assert judged["loss"] == pytest.approx(summary(run)["best"]["loss"], rel=1e-5)


@pytest.mark.parametrize(("table", "message"), [
    ('kind="synthetic", function="blobs", items=90', "augment"),
    ('kind="npz", path="flat.npz", augment=["flip"]', "`augment` is for images"),
    ('kind="npz", path="images.npz", mean=[0.5]', "`mean` and `deviation` go together"),
])  # fmt: skip
def test_validate_refuses(tmp_path: Path, table: str, message: str) -> None:
    images(tmp_path)
    np.savez(tmp_path / "flat.npz", inputs=np.ones((9, 4)), targets=np.arange(9) % 2)
    table = table if "augment" in table or "mean" in table else f'{table}, augment=["flip"]'
    said = partrain("validate", write_job(tmp_path, f"dataset={{{table}}}"))
    assert said.code
    assert message in said.out + said.err


def test_a_misspelt_change_is_told_before_training(tmp_path: Path) -> None:
    images(tmp_path)
    job = write_job(tmp_path, 'dataset={kind="npz", path="images.npz", augment=["flip", "flop"]}', 'model={name="cnn"}')
    assert partrain("validate", job).code == 0
    for words in (["validate", "--build", job], ["run", job, "--out", tmp_path / "run", "-q"]):
        said = partrain(*words)
        assert said.code == 78, said
        assert '`augment` names "flop", which torchvision.transforms.v2 does not have' in said.err
        assert 'did you mean "flip"?' in said.err
    assert not list((tmp_path / "run").glob("checkpoints/*"))


HOOK = """
import torch


class Data:
    def __init__(self, hook=True):
        self.items = [(torch.arange(4.0) + number, number % 2) for number in range(40)]

    def __len__(self):
        return 40

    def __getitem__(self, number):
        return self.items[number]

    @staticmethod
    def augment(inputs, generator):
        return inputs + torch.randn(inputs.shape, generator=generator)


class Bad(Data):
    @staticmethod
    def augment(inputs, generator):
        return inputs[:, :2]
"""


@pytest.mark.slow
def test_a_users_data_set_augments_its_batches(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(HOOK)
    learns = ['model={name="mlp", hidden=[4]}', 'optimizer={name="sgd", lr=0.01, batch_size=4}']
    run = train(tmp_path, 'dataset={name="own.py:Data", validation=8}', *learns)
    resume(round_file(run, 2), "--out", tmp_path / "again", "--trust-code")
    assert newest(tmp_path / "again") == newest(run)
    job = write_job(tmp_path, 'dataset={name="own.py:Bad", validation=8}', *learns)
    said = partrain("run", job, "--out", tmp_path / "bad", "--quiet")
    assert "`augment` turns float32 (4, 4) into float32 (4, 2); keep shapes and types" in said.err
