"""Networks that start with published weights: found in the caches of torch and Hugging Face, matched, and refused with advice."""

from __future__ import annotations

import hashlib
import http.server
import json
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.preload import torchvision_preloaded  # noqa: F401  a fixture
from support.runs import SIMULATED, Command, Said, newest, partrain, resume, round_file, write_job
from torch import Tensor, nn

from partrain.checkpoint import decode
from partrain.checkpoint.pretrained import find, path_of
from partrain.errors import BadJob
from partrain.models import catalog
from partrain.models.image_sections import Timm, TorchVision
from partrain.system.torchvision import import_torchvision

VISION, TAG = "torchvision:shufflenet_v2_x0_5", "IMAGENET1K_V1"
TIMM = "timm:test_resnet"
JOB = """name = "pictures"

[model]
name = "torchvision:shufflenet_v2_x0_5"

[dataset]
kind = "npy"
inputs = "inputs.npy"
targets = "targets.npy"
validation = 4

[optimizer]
name = "sgd"
lr = 1e-30
batch_size = 4

[sync]
rule = "average"
iterations = 1

[[workers]]
count = 2

[stop]
rounds = 2

[checkpoint]
commit = "every"
keep = 10
"""


@pytest.fixture
def listed_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """List published weights in this process, which imports torchvision and timm once. The first cases of `test_..._are_found` start the program."""

    def run(words: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        package, network = words[-2:]
        listed = {"torchvision": catalog._of_torchvision, "timm": catalog._of_timm}[package](network)
        return subprocess.CompletedProcess(words, 0, json.dumps(listed), "")

    monkeypatch.setattr(catalog, "subprocess", SimpleNamespace(run=run))


@pytest.fixture
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed_here: None) -> Path:
    """Empty caches, and a folder with small images of three classes."""
    for name in ("TORCH_HOME", "HF_HOME", "PARTRAIN_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    generator = np.random.default_rng(0)
    for channels, folder in ((3, tmp_path / "job"), (1, tmp_path / "grey")):
        folder.mkdir()
        np.save(folder / "inputs.npy", generator.normal(size=(16, channels, 32, 32)).astype(np.float32))
        np.save(folder / "targets.npy", np.arange(16) % 3)
    return tmp_path


def published(name: str) -> dict[str, Tensor]:
    """Random numbers in the shapes of a published file: 1000 classes."""
    torch.manual_seed(5)
    models = import_torchvision("torchvision.models")
    package, _, model = name.partition(":")
    make = partial(models.get_model, weights=None) if package == "torchvision" else __import__("timm").create_model
    module: nn.Module = make(model)
    return {key: one.uniform_(0.1, 0.2) if one.is_floating_point() else one for key, one in module.state_dict().items()}


def put(path: Path, arrays: dict[str, Tensor]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".safetensors":
        from safetensors.torch import save_file

        save_file({name: one.contiguous() for name, one in arrays.items()}, path)
    else:
        torch.save(arrays, path)
    return path


def taken(run: Path) -> dict[str, np.ndarray[Any, Any]]:
    arrays = decode(newest(run)).arrays
    return {path.removeprefix("model/"): one for path, one in arrays.items() if path.startswith("model/")}


def started(folder: Path, *sets: str) -> tuple[Path, str]:
    """A run, and what it printed."""
    said = partrain("run", write_job(folder, *sets, text=JOB), "--out", folder / "run")
    assert said.code == 0, said
    return folder / "run", said.out + said.err


def refused(folder: Path, *sets: str, code: int, command: str = "run") -> Said:
    job = folder / "job.toml"
    job.write_text(JOB)
    words = ["--out", folder / "run", "--quiet"] if command == "run" else []
    said = partrain(command, job, *words, *(word for one in sets for word in ("--set", one)))
    assert said.code == code, said
    return said


def check_taken(run: Path, arrays: dict[str, Tensor], head: str) -> None:
    found = taken(run)
    for name, one in arrays.items():
        if name.startswith(head):
            assert found[name].shape[0] == 3
        elif name.endswith(("weight", "bias")):
            assert np.array_equal(found[name], one.numpy()), name


@pytest.mark.usefixtures("torchvision_preloaded")
@pytest.mark.slow
@pytest.mark.parametrize("key", [pytest.param("pretrained=true", marks=pytest.mark.slow), f'weights="{TAG}"'])
def test_torchvisions_weights_come_from_torchs_cache(caches: Path, key: str) -> None:
    arrays = published(VISION)
    section = TorchVision(name=VISION, pretrained=True)
    path = put(find(section).places[0], arrays)
    assert path == caches / "torch_home" / "hub" / "checkpoints" / Path(find(section).url).name
    run, note = started(caches / "job", f'model={{name="{VISION}", {key}}}')
    check_taken(run, arrays, "fc.")
    assert "of other classes, starts from random numbers: fc.weight, fc.bias" in note
    if key != "pretrained=true":  # what a resumed run reads is the same
        return
    path.unlink()
    resume(round_file(run, 1), "--out", caches / "again")
    assert newest(caches / "again") == newest(run)


@pytest.mark.usefixtures("torchvision_preloaded")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "folder"), [("model.safetensors", "job"), pytest.param("pytorch_model.bin", "grey", marks=pytest.mark.slow)]
)
def test_timms_weights_come_from_either_cache(caches: Path, form: str, folder: str) -> None:
    """A snapshot in Hugging Face's cache is a link to a file without a suffix."""
    arrays = published(TIMM)
    hub = caches / "hf_home" / "hub" / "models--timm--test_resnet.r160_in1k"
    blob = put(hub / "blobs" / form, arrays).rename(hub / "blobs" / "0123")
    snapshot = hub / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / form).symlink_to(blob)
    (hub / "refs").mkdir()
    (hub / "refs" / "main").write_text("abc\n")
    run, note = started(caches / folder, f'model={{name="{TIMM}", pretrained=true}}')
    check_taken(run, arrays, "fc.")
    assert "of other classes, starts from random numbers: fc.weight, fc.bias" in note


@pytest.mark.usefixtures("torchvision_preloaded")
@pytest.mark.slow
def test_a_published_file_by_its_path_needs_an_exception_for_its_head(caches: Path) -> None:
    arrays = published(VISION)
    put(caches / "job" / "weights.pth", arrays)
    said = refused(caches / "job", f'model={{name="{VISION}", from="weights.pth"}}', code=78)
    assert "2 other shape" in said.err
    assert 'did you mean except = ["fc.*"] for arrays that start from random numbers' in said.err
    run, _ = started(caches / "job", f'model={{name="{VISION}", from="weights.pth", except=["fc.*"]}}')
    check_taken(run, arrays, "fc.")


@pytest.mark.slow
def test_old_files_count_no_batches(caches: Path) -> None:
    """By a command of its own, whose process of workers imports torchvision itself."""
    arrays = {name: one for name, one in published(VISION).items() if not name.endswith("num_batches_tracked")}
    put(find(TorchVision(name=VISION, pretrained=True)).places[0], arrays)
    sets = f'model={{name="{VISION}", pretrained=true}}', SIMULATED
    job, run = write_job(caches / "job", *sets, text=JOB), caches / "job" / "run"
    with Command(("run", job, "--out", run, "-q"), caches) as command:
        said = command.wait()
    assert said.code == 0, said
    check_taken(run, arrays, "fc.")


@pytest.mark.usefixtures("torchvision_preloaded")
@pytest.mark.parametrize("command", ["validate", pytest.param("run", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("name", "wanted"), [
    (VISION, "shufflenetv2_x0.5-f707e7126e.pth; put https://download.pytorch.org/models/shufflenetv2_x0.5-f707e7126e.pth there"),
    (TIMM, "`hf download timm/test_resnet.r160_in1k model.safetensors` puts it there"),
])  # fmt: skip
def test_a_missing_file_is_one_line_with_its_place_and_source(caches: Path, command: str, name: str, wanted: str) -> None:
    said = refused(caches / "job", f'model={{name="{name}", pretrained=true}}', code=66, command=command)
    text = said.err + said.out
    assert text.count("are not on this machine: there is no") == 1, text
    assert str(caches / ("torch_home" if name == VISION else "hf_home")) in text
    assert wanted in text
    assert not (caches / "job" / "run").exists()


@pytest.mark.parametrize(("keys", "said"), [
    (f'name="{VISION}", weights="IMAGENET1K_V2"', "did you mean `IMAGENET1K_V1`?"),
    (f'name="{VISION}", weights="other"', "torchvision has no weights `other` for `shufflenet_v2_x0_5`; it has IMAGENET1K_V1"),
    (f'name="{TIMM}", weights="r160_in2k"', "did you mean `r160_in1k`?"),
    ('name="timm:test_vit_relpos", pretrained=true', "timm publishes no weights for `test_vit_relpos`"),
    (f'name="{VISION}", pretrained=true, from="a.pt"', "`from` and `pretrained` both say how the network starts"),
    (f'name="{VISION}", pretrained=false, weights="A"', "`weights` contradicts `pretrained = false`"),
    (f'name="{VISION}", sha256="{"0" * 64}"', "`sha256` has no effect without `pretrained` or `weights`"),
    (f'name="{VISION}", pretrained=true, sha256="12"', "`sha256`: expected 64 hexadecimal digits"),
    (f'name="{TIMM}.r160_in1k"', "has the tag `r160_in1k` of pretrained weights: add `pretrained = true`"),
    (f'name="{TIMM}", num_classes=3', "num_classes comes from the data set"),
    (f'name="{VISION}", from="https://host/a.pth"', "needs its SHA-256, as in"),
])  # fmt: skip
def test_what_contradicts_is_told_by_validate(caches: Path, keys: str, said: str) -> None:
    job = caches / "job" / "job.toml"
    job.write_text(JOB)
    told = partrain("validate", job, "--set", f"model={{{keys}}}")
    assert told.code in (66, 78)
    assert said in told.out + told.err, told


@pytest.mark.usefixtures("torchvision_preloaded")
@pytest.mark.parametrize(("name", "fault", "near"), [
    ("timm:tset_resnet", "timm has no model `tset_resnet`", "test_resnet"),
    ("torchvision:resnet5", "torchvision has no model `resnet5`", "resnet50"),
])  # fmt: skip
@pytest.mark.parametrize("words", [pytest.param(["run", "--quiet"], marks=pytest.mark.slow), ["validate", "--build"]])
def test_a_misspelt_network_is_told_before_training(caches: Path, words: list[str], name: str, fault: str, near: str) -> None:
    """`validate` alone imports neither package, so it lets the name pass."""
    keys = f'model={{name="{name}"}}'
    refused(caches / "job", keys, code=0, command="validate")
    told = partrain(*words, caches / "job" / "job.toml", "--set", keys)
    assert told.code == 78
    assert fault in told.err
    assert f"did you mean `{near}`?" in told.err


@pytest.fixture
def server(caches: Path) -> Iterator[str]:
    """A server of the weights, and its URL."""
    put(caches / "www" / "weights.pth", published(VISION))
    handler = partial(_Quiet, directory=str(caches / "www"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{serving.server_address[1]}/weights.pth"
        serving.shutdown()
        thread.join()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.mark.usefixtures("torchvision_preloaded")
@pytest.mark.slow
def test_a_digest_lets_the_run_fetch_a_file(caches: Path, server: str) -> None:
    digest = hashlib.sha256((caches / "www" / "weights.pth").read_bytes()).hexdigest()
    keys = f'model={{name="{VISION}", from="{server}#sha256={digest}", except=["fc.*"]}}'
    assert "has not been fetched yet" in refused(caches / "job", keys, code=0, command="validate").out
    assert not (caches / "partrain_cache").exists()
    run, _ = started(caches / "job", keys)
    check_taken(run, published(VISION), "fc.")
    assert (caches / "partrain_cache" / digest / "weights.pth").is_file()


def test_weights_by_name_and_digest_are_fetched_and_checked(caches: Path, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from partrain.checkpoint import pretrained

    digest = hashlib.sha256((caches / "www" / "weights.pth").read_bytes()).hexdigest()
    monkeypatch.setattr(pretrained.Weights, "source", property(lambda weights: server))
    section = TorchVision(name=VISION, weights=TAG, sha256=digest)
    assert pretrained.missing_url(section) == f"{server}#sha256={digest}"
    path = pretrained.locate(section)
    assert path == path_of(section) == caches / "partrain_cache" / digest / "weights.pth"
    assert pretrained.missing_url(section) is None
    put(find(section).places[0], {"other": torch.zeros(1)})
    with pytest.raises(Exception, match=r"its SHA-256 is .*, not the `sha256` of \[model\]"):
        pretrained.locate(section.model_copy(update={"sha256": "0" * 64}))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet50", "vit_b_16", "mnasnet1_0", "efficientnet_v2_s", "inception_v3"])
def test_weights_of_torchvision_are_found(name: str, request: pytest.FixtureRequest) -> None:
    if name != "resnet50":
        request.getfixturevalue("listed_here")
    models = import_torchvision("torchvision.models")
    theirs = models.get_model_weights(name)
    assert find(TorchVision(name=f"torchvision:{name}", pretrained=True)).url == theirs.DEFAULT.url
    assert find(TorchVision(name=f"torchvision:{name}", weights="DEFAULT")).url == theirs.DEFAULT.url
    for member in theirs:
        assert find(TorchVision(name=f"torchvision:{name}", weights=member.name)).url == member.url


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet10t", "vit_base_patch16_224", "inception_v4"])
def test_defaults_of_timm_are_found(name: str, request: pytest.FixtureRequest) -> None:
    if name != "resnet10t":
        request.getfixturevalue("listed_here")
    import_torchvision("torchvision.models")
    timm = pytest.importorskip("timm")
    theirs = timm.get_pretrained_cfg(name)
    assert find(Timm(name=f"timm:{name}", pretrained=True)).repository == theirs.hf_hub_id == f"timm/{name}.{theirs.tag}"


def test_googlenet_transforms_its_input_as_it_was_trained_to() -> None:
    from partrain.models import Interface, build

    with torch.device("meta"):
        interface = Interface((3, 64, 64), 4, "classification")
        assert build(TorchVision(name="torchvision:googlenet", pretrained=True), Path(), interface).transform_input
        assert not build(TorchVision(name="torchvision:googlenet"), Path(), interface).transform_input


def test_the_second_place_of_timms_weights_is_torchs_cache(caches: Path) -> None:
    places = find(Timm(name="timm:resnet10t", pretrained=True)).places
    assert places[-1] == caches / "torch_home" / "hub" / "checkpoints" / "resnet10t_176_c3-f3215ab1.pth"


def test_a_model_of_timm_that_does_not_exist() -> None:
    from partrain.models import Interface, build

    with pytest.raises(BadJob, match=r"timm has no model `resnet10`; did you mean `resnet101`\?|did you mean `resnet10t`\?"):
        build(Timm(name="timm:resnet10"), Path(), Interface((3, 32, 32), 4, "classification"))
