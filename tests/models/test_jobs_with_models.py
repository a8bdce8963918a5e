"""Networks by name in jobs: the messages of `validate`, and whole runs by the command line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from support.runs import JOB, newest, partrain, summary, train, write_job

from partrain.checkpoint import Content, decode
from partrain.inference.network import build_network
from partrain.job.load import load, problems

JOBS = Path(__file__).parents[2] / "jobs"


def images(folder: Path, height: int = 9, width: int = 8) -> tuple[str, ...]:
    """Return overrides for grey images in IDX files beside the job. The label is the brighter half."""
    folder.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(3).integers(0, 256, (120, height, width), dtype=np.uint8)
    labels = (pixels[:, : height // 2].mean((1, 2)) > pixels[:, height // 2 :].mean((1, 2))).astype(np.uint8)
    for name, array in (("pixels", pixels), ("labels", labels)):
        sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
        (folder / f"{name}.gz").write_bytes(gzip.compress(bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()))
    return ('dataset={kind="idx", inputs="pixels.gz", targets="labels.gz", validation=20}',)


def said(tmp_path: Path, model: str, *sets: str) -> list[str]:
    found = problems(write_job(tmp_path, f"model={{{model}}}", *sets))
    return [f"{one.message}{'; ' * bool(one.suggestion)}{one.suggestion}" for one in found if one.severity == "error"]


def test_validate_reports_networks_that_do_not_fit_their_items(tmp_path: Path) -> None:
    wanted = "takes images (channels, height, width), and the items are"
    assert said(tmp_path, 'name="cnn"') == [f"`cnn` {wanted} 2 numbers"]
    assert said(tmp_path, 'name="torchvision:resnet18"') == [f"`torchvision:resnet18` {wanted} 2 numbers"]
    sequences = "takes tokens (length,) or number series (steps, features), and the items are"
    assert said(tmp_path, 'name="lstm"') == [f"`lstm` {sequences} 2 numbers"]
    pictures = images(tmp_path)
    assert said(tmp_path, 'name="transformer"', *pictures) == [f"`transformer` {sequences} images of 1 x 9 x 8"]
    assert said(tmp_path, 'name="cnn", channels=[2, 2, 2, 2]', *pictures) == [
        "pooling by 2 in 4 stages leaves nothing of images of 1 x 9 x 8 after stage 4"
    ]
    assert said(tmp_path, 'name="resnet"', *pictures, 'task={kind="autoencoder"}') == [
        "`resnet` has no answers for the task `autoencoder`, only for classification, regression, forecast, multi-label"
    ]
    assert said(tmp_path, 'name="autoencoder", channels=[4]') == [
        "`channels` are for images (channels, height, width), and the items are 2 numbers"
    ]
    assert said(tmp_path, 'name="cnn"', *pictures) == []


@pytest.mark.parametrize("model", ["cnn", "resnet", "torchvision:resnet18", "autoencoder"])
def test_images_with_the_channels_last_are_refused(tmp_path: Path, model: str) -> None:
    network = f'name="{model}"' + ", channels=[4]" * (model == "autoencoder")
    for shape, refused in ((9, 8, 3), True), ((8, 9, 1), True), ((3, 9, 8), False), ((8, 4, 4), False):
        np.savez(tmp_path / "some.npz", inputs=np.zeros((60, *shape), "u1"), targets=np.arange(60) % 2)
        texts = said(tmp_path, network, f'dataset={{kind="npz", path="{tmp_path / "some.npz"}", validation=20}}')
        assert any("save `np.moveaxis(inputs, -1, 1)` of them" in text for text in texts) == refused


@pytest.mark.parametrize(("model", "expected"), [
    ('name="cnn", kernel=4', "`kernel`: expected an odd number, got 4: an even kernel has no middle"),
    ('name="transformer", width=10', "heads: the width 10 is not a multiple of 4"),
    ('name="resnet", depth=21', "`depth`: expected 18, 20, 32, 34, 44, 50, 56, 101, 110 or 152, got 21"),
    ('name="resnet", groups=4', 'groups would have no effect: norm = "batch"'),
    ('name="resnet", stem="small"', "stem would have no effect: depth 20 is the CIFAR form, whose stem is always small"),
    ('name="lsmt"', 'unknown model "lsmt"; did you mean "lstm"?'),
    ('name="cnn", chanels=[3]', "unknown key `chanels` in [model]; did you mean `channels`?"),
    ('name="torchvision:"', '`name`: expected "torchvision:" and a name of torchvision.models, such as "torchvision:resnet50"'),
    ('name="torchvision:vgg16", weights="IMAGENET21K"',
     "torchvision has no weights `IMAGENET21K` for `vgg16`; did you mean `IMAGENET1K_V1`?"),
    ('name="lstm", dropout=1', "`dropout`: expected at least 0 and less than 1, got 1"),
])  # fmt: skip
def test_invalid_settings(tmp_path: Path, model: str, expected: str) -> None:
    assert expected in said(tmp_path, model)


@pytest.mark.parametrize("kind", ["shared", "simulated"])
@pytest.mark.parametrize("model", [
    'name="cnn", channels=[4, 6], dense=[8], batch_norm=true, dropout=0.25, freeze=["0.*"]',
    'name="autoencoder", channels=[4], hidden=[], code=3, batch_norm=true, noise=0.1', 'name="resnet", norm="group"',
])  # fmt: skip
def test_a_run_and_its_network(tmp_path: Path, model: str, kind: str) -> None:
    sets = (f"model={{{model}}}", *images(tmp_path), "stop={rounds=2, judge_every=1}", f'transport.kind="{kind}"')
    run = train(tmp_path, *sets)
    content: Content = decode(newest(run))
    trained = build_network(load(tmp_path / "job.toml"), content)
    stored = {path.removeprefix("model/") for path in content.arrays if path.startswith("model/")}
    assert stored == trained.state_dict().keys()
    judged = partrain("evaluate", run / "checkpoint.h5", "--json")
    assert judged.code == 0, judged
    assert "validation" in json.dumps(json.loads(judged.out))
    with torch.no_grad():
        assert torch.isfinite(trained(torch.rand(3, 1, 9, 8))).all()


def test_the_same_bits_on_both_transports(tmp_path: Path) -> None:
    model = 'model={name="cnn", channels=[4], dense=[8], batch_norm=true, dropout=0.25}'
    arrays = []
    for kind in "shared", "simulated":
        sets = (model, *images(tmp_path / kind), "stop={rounds=2}", f'transport.kind="{kind}"')
        arrays.append(decode(newest(train(tmp_path / kind, *sets))).arrays)
    for path in [path for path in arrays[0] if path.startswith("model/")]:
        assert np.array_equal(arrays[0][path], arrays[1][path]), path


@pytest.mark.parametrize(
    ("model", "code"), [('name="mlp", freeze=["conv1.*"]', 78), ('name="net.py:Net", freeze=["nothing"]', 78)]
)
def test_patterns_without_a_parameter(tmp_path: Path, model: str, code: int) -> None:
    path = write_job(tmp_path, f"model={{{model}}}")
    (tmp_path / "net.py").write_text("from torch import nn\ndef Net(): return nn.Linear(2, 3)\n")
    ended = partrain("run", path, "--out", tmp_path / "run", "--quiet")
    assert ended.code == code, ended
    assert ended.err.count(f"error[bad-job]: {path}:") == ended.err.count("no parameter is called") == 1
    assert "Traceback" not in ended.err


def test_a_user_network_may_be_partly_frozen(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "from torch import nn\ndef Net(): return nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3))\n"
    )
    run = train(tmp_path, 'model={name="net.py:Net", freeze=["0.*"]}', text=JOB.replace("rounds = 4", "rounds = 2"))
    first, last = (decode((run / "checkpoints" / f"round-00000{number}.h5").read_bytes()).arrays for number in (1, 2))
    assert np.array_equal(first["model/0.weight"], last["model/0.weight"])
    assert not np.array_equal(first["model/2.weight"], last["model/2.weight"])


def test_lazy_layers_learn_their_sizes_from_the_items(tmp_path: Path) -> None:
    """Commands on the checkpoint build the same network."""
    for name, kind in (("lazy", "nn.LazyLinear(4)"), ("known", "nn.Linear(2, 4)")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "net.py").write_text(
            f"from torch import nn\ndef Net(): return nn.Sequential({kind}, nn.Dropout(), nn.Tanh(), nn.Linear(4, 3))\n"
        )
    lazy, known = (train(tmp_path / name, 'model={name="net.py:Net"}') for name in ("lazy", "known"))
    networks = [decode((run / "checkpoint.h5").read_bytes()).arrays for run in (lazy, known)]
    assert networks[0]["model/0.weight"].shape == networks[1]["model/0.weight"].shape == (4, 2)
    said = partrain("evaluate", lazy, "--trust-code")
    assert said.code == 0, said


@pytest.mark.slow
@pytest.mark.parametrize(("job", "sets", "best"), [
    ("mnist-cnn", ("model.channels=[8, 16]", "model.kernel=3", "stop={rounds=15, judge_every=15}"), 0.4),
    ("mnist-autoencoder", ("stop={rounds=15, judge_every=15}",), 0.055),
])  # fmt: skip
def test_the_jobs_learn_in_a_short_form(tmp_path: Path, job: str, sets: tuple[str, ...], best: float) -> None:
    flags = [word for one in sets for word in ("--set", one)]
    ended = partrain("run", JOBS / f"{job}.toml", "--out", tmp_path / "run", "--quiet", *flags)
    assert ended.code == 0, ended
    assert summary(tmp_path / "run")["test"]["loss"] < best
