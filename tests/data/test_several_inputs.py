"""Items with several inputs, or of unequal length: from user code and from files, trained, resumed, evaluated, predicted, exported."""

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from support.onnx_registry import keep_onnx_registry
from support.runs import SIMULATED, newest, partrain, resume, round_file, summary, train, write_job
from support.shared_runs import once

from partrain.byte_layout import part_view
from partrain.data import Dataset, load
from partrain.data.user.section import UserData
from partrain.errors import Failure, InputMissing, UserCodeFailed

NETS = """
import torch
from torch import nn


class Both(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.of_image, self.of_meta = nn.LazyLinear(width), nn.Linear(3, width)
        self.drop, self.answer = nn.Dropout(0.2), nn.Linear(width, 2)

    def forward(self, image, meta):
        return self.answer(self.drop(torch.relu(self.of_image(image.flatten(1)) + self.of_meta(meta))))


class OneDict(Both):
    def forward(self, batch):
        return super().forward(**batch)


class Clash(Both):
    def __init__(self):
        super().__init__()
        self.meta = self.of_meta


class Wrong(Both):
    def forward(self, image, mete):
        return super().forward(image, mete)


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.answer = nn.Embedding(9, 6), nn.Linear(6, 2)

    def forward(self, tokens, lengths):
        there = torch.arange(tokens.shape[1]) < lengths[:, None]
        return self.answer((self.embedding(tokens) * there[..., None]).sum(1) / lengths[:, None])


class NoLengths(Tokens):
    def forward(self, tokens):
        return super().forward(tokens, tokens[:, 0])


class Data:
    def __init__(self, form="dict", size=120):
        draw = torch.Generator().manual_seed(0)
        self.image, self.meta = torch.rand(size, 1, 4, 4, generator=draw), torch.randn(size, 3, generator=draw)
        self.label = (self.meta.sum(1) > 0).long()
        self.form = form

    def __len__(self):
        return len(self.label)

    def __getitem__(self, number):
        image, meta, label = self.image[number], self.meta[number], int(self.label[number])
        forms = {"dict": ({"image": image, "meta": meta}, label), "tuple": ((image, meta), label), "triple": (image, meta, label)}
        return forms[self.form]

    def test(self):
        return Data(self.form, 40)


def words(size=120, longest=9, language=False):
    draw = torch.Generator().manual_seed(1)
    found = []
    for number in range(size):
        text = torch.randint(9, (1 + number % longest,), generator=draw)
        found.append((text, text.roll(-1) if language else int((text > 4).float().mean() > 0.5)))
    return found


def stream(size=30):
    yield from words(size)
"""

LEARNS = 'optimizer={name="adam", lr=0.01, batch_size=8}'


def user(folder: Path, name: str, **arguments: Any) -> Dataset:
    (folder / "own.py").write_text(NETS)
    return load(UserData(name=f"own.py:{name}", **arguments), folder)


def job(folder: Path, model: str, dataset: str, *more: str) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "own.py").write_text(NETS)
    return [f"model={model}", f"dataset={dataset}", LEARNS, *more]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["dict", "tuple", "triple"])
def test_items_that_are_dicts_or_tuples(tmp_path: Path, form: str) -> None:
    data = user(tmp_path, "Data", form=form)
    names = ["image", "meta"] if form == "dict" else ["", ""]
    assert [(part.name, part.dtype, part.shape) for part in data.parts] == list(
        zip(names, ["float32", "float32"], [(1, 4, 4), (3,)], strict=True)
    )
    assert (data.task, data.outputs, data.items, data.scale) == ("classification", 2, 120, 1.0)
    image, meta = (part_view(data.inputs, part) for part in data.parts)
    assert ((meta.sum(1) > 0) == data.targets).all()
    assert 0 <= image.min() < image.max() < 1
    assert data.test_inputs is not None
    assert len(data.test_inputs) == 40


@pytest.mark.slow
def test_sequences_of_unequal_length_are_padded_and_counted(tmp_path: Path) -> None:
    data = user(tmp_path, "words")
    tokens, lengths = (part_view(data.inputs, part) for part in data.parts)
    assert [part.name for part in data.parts] == ["", "lengths"]
    assert (data.item_shape, data.vocabulary) == ((9,), 9)
    assert lengths.tolist() == [1 + number % 9 for number in range(120)]
    assert all((row[length:] == 0).all() for row, length in zip(tokens, lengths, strict=True))
    assert data.targets[:3].tolist() == [int((tokens[n, : lengths[n]] > 4).mean() > 0.5) for n in range(3)]
    language = user(tmp_path, "words", language=True)
    assert language.task == "language"
    assert [int((row >= 0).sum()) for row in language.targets] == lengths.tolist()
    assert set(language.targets[language.targets < 0].tolist()) == {-100}


@pytest.mark.slow
def test_an_iterator_is_read_once_to_its_end(tmp_path: Path) -> None:
    data = user(tmp_path, "stream")
    assert data.items == 30
    assert data.inputs.tobytes() == user(tmp_path, "words", size=30).inputs.tobytes()


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("[({'a b': np.ones(2)}, 1)]", "item 0: its input: `a b` is no name of an argument"),
        ("[({'lengths': np.ones(2)}, 1)]", "item 0: its input: `lengths` is the name of the lengths of padded items"),
        ("[({}, 1)]", "item 0: its input is an empty dict"),
        ("[({'a': np.ones(2)}, 1), ({'b': np.ones(2)}, 1)]", r"item 1: its inputs are \['b'\], and item 0 has \['a'\]"),
        ("[({'a': np.ones(2)}, 1), ({'a': np.ones(3)}, 1)]", r"item 1: its input `a` is numbers \(3,\), and item 0 has numbers \(2,\)"),
        ("[((np.ones(2), [np.inf]), 1)]", "item 0: its input  ?holds a number that is not finite"),
        ("[((np.arange(2), np.ones(2)), 1), ((np.arange(3), np.ones(2)), 1)]", "its inputs are a tuple, and their lengths differ"),
        ("[(np.arange(2), 1), (np.arange(3.0), 1)]", r"item 1: its input is numbers \(3,\), and item 0 has tokens \(2,\)"),
        ("[(np.arange(2), 1), (-np.arange(3), 1)]", "item 1: its input holds a negative number"),
    ],
)  # fmt: skip
def test_wrong_items_are_named(tmp_path: Path, code: str, message: str) -> None:
    (tmp_path / "own.py").write_text(f"import numpy as np\ndef data(): return {code}")
    with pytest.raises(UserCodeFailed, match=message) as caught:
        load(UserData(name="own.py:data"), tmp_path)
    assert "\n" not in caught.value.message


def test_a_dict_with_a_sequence_gets_its_lengths_by_name(tmp_path: Path) -> None:
    code = "import numpy as np\ndef data(): return [({'text': np.arange(1 + n % 3), 'age': 0.5}, 1.0) for n in range(6)]"
    (tmp_path / "own.py").write_text(code)
    data = load(UserData(name="own.py:data"), tmp_path)
    assert [(part.name, part.dtype, part.shape) for part in data.parts] == [
        ("text", "int64", (3,)),
        ("age", "float32", (1,)),
        ("text_lengths", "int64", ()),
    ]
    assert part_view(data.inputs, data.parts[2]).tolist() == [1, 2, 3] * 2


def write_arrays(path: Path, **arrays: Any) -> Path:
    if path.suffix == ".npz":
        np.savez(path, allow_pickle=False, **arrays)
    else:
        with h5py.File(path, "w") as file:
            for name, array in arrays.items():
                file[name] = array
    return path


def image_and_meta(count: int = 90) -> dict[str, Any]:
    draw = np.random.default_rng(0)
    image, meta = draw.integers(0, 256, (count, 4, 4)).astype("u1"), draw.normal(size=(count, 3))
    return {"image": image, "meta": meta, "targets": (meta.sum(1) > 0).astype(int)}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["npz", "hdf5"])
def test_several_arrays_of_a_file_train_resume_evaluate_and_predict(tmp_path: Path, kind: str) -> None:
    suffix = {"npz": ".npz", "hdf5": ".h5"}[kind]
    write_arrays(tmp_path / f"items{suffix}", **image_and_meta())
    table = f'{{kind="{kind}", path="items{suffix}", inputs=["image", "meta"], validation=10, test_items=12}}'
    sets = job(tmp_path, '{name="own.py:Both"}', table, "optimizer.accumulate=2")
    run = train(tmp_path, *sets, *[SIMULATED] * (kind == "hdf5"))
    resume(round_file(run, 2), "--out", tmp_path / "again", "--trust-code")
    assert newest(tmp_path / "again") == newest(run)
    said = partrain("evaluate", run, "--json", "--trust-code")
    judged = json.loads(said.out)
    assert (judged["validation"]["items"], judged["test"]["items"]) == (10, 12)
    assert judged["test"]["loss"] == pytest.approx(summary(run)["test"]["loss"], rel=1e-6)
    new = write_arrays(tmp_path / f"new{suffix}", **image_and_meta())
    found = json.loads(partrain("predict", run, "-i", new, "--probabilities", "--json", "--trust-code").out)
    whole = json.loads(partrain("evaluate", run, "-i", new, "--json", "--trust-code").out)[str(new)]
    right = np.mean(np.array(found["label"]) == image_and_meta()["targets"])
    assert whole["accuracy"] == pytest.approx(right)
    short = write_arrays(tmp_path / f"short{suffix}", image=image_and_meta()["image"])
    assert "no array `meta`" in partrain("predict", run, "-i", short, "--trust-code").err


@pytest.mark.slow
def test_simulated_workers_get_the_bits_of_processes(tmp_path: Path) -> None:
    sets = job(tmp_path, '{name="own.py:Both"}', '{name="own.py:Data", validation=20}')
    tensors = []
    for kind in ("shared", "simulated"):
        run = train(
            tmp_path / kind, *job(tmp_path / kind, *[one.partition("=")[2] for one in sets[:2]]), f'transport={{kind="{kind}"}}'
        )
        with h5py.File(run / "checkpoint.h5") as file:
            tensors.append({name: file["model"][name][...].tobytes() for name in file["model"]})
    assert tensors[0] == tensors[1]


@pytest.mark.slow
def test_a_network_may_take_the_dict_itself(tmp_path: Path) -> None:
    data = '{name="own.py:Data", validation=20}'
    one = train(tmp_path / "one", *job(tmp_path / "one", '{name="own.py:OneDict"}', data, SIMULATED))
    two = train(tmp_path / "two", *job(tmp_path / "two", '{name="own.py:Both"}', data, SIMULATED))
    assert summary(one)["loss"] == summary(two)["loss"]


@pytest.mark.slow
@pytest.mark.parametrize(("model", "data", "message"), [
    ('{name="own.py:Wrong"}', "Data", "expected forward(image, meta)"),
    ('{name="mlp"}', "Data", "`mlp` takes one array, and the items have 2 inputs: image (1, 4, 4), meta (3,)"),
    ('{name="autoencoder"}', "Data", "an autoencoder gives back one array of numbers"),
    ('{name="own.py:NoLengths"}', "words", "expected forward(items, lengths)"),
    ('{name="mlp"}', "words", "sequences of unequal length; take rnn, lstm, gru or transformer"),
])  # fmt: skip
def test_a_network_that_does_not_fit_is_refused_before_training(tmp_path: Path, model: str, data: str, message: str) -> None:
    sets = job(tmp_path, model, f'{{name="own.py:{data}", validation=20}}')
    said = partrain("run", write_job(tmp_path, *sets), "--out", tmp_path / "run", "--quiet")
    assert said.code
    assert message in said.err


def test_files_that_do_not_fit_are_named(tmp_path: Path) -> None:
    from partrain.data.arrays.sections import Npz

    path = write_arrays(tmp_path / "a.npz", x=np.ones((4, 2)), z=np.ones((3, 2)), targets=np.arange(4) % 2)
    with pytest.raises(InputMissing, match="`z`: holds 3 items"):
        load(Npz(kind="npz", path=str(path), inputs=["x", "z"]), tmp_path)
    with pytest.raises(Failure, match="`tokens` names y, which is no input"):
        load(Npz(kind="npz", path=str(path), inputs=["x"], tokens=["y"]), tmp_path)
    path = write_arrays(tmp_path / "b.npz", inputs=np.arange(5), offsets=np.array([0, 2, 2, 5]), targets=np.arange(3) % 2)
    with pytest.raises(InputMissing, match="item 1 is empty"):
        load(Npz(kind="npz", path=str(path), tokens=True, offsets="offsets"), tmp_path)
    path = write_arrays(tmp_path / "c.npz", inputs=np.arange(5), offsets=np.array([0, 2, 4]), targets=np.arange(2) % 2)
    with pytest.raises(InputMissing, match=r"run from 0 to 4, and .* has 5 elements"):
        load(Npz(kind="npz", path=str(path), tokens=True, offsets="offsets"), tmp_path)


def texts(count: int = 60) -> dict[str, Any]:
    draw = np.random.default_rng(1)
    items = [draw.integers(0, 9, 1 + number % 7) for number in range(count)]
    starts = np.cumsum([0, *map(len, items)])
    return {"inputs": np.concatenate(items), "offsets": starts, "targets": np.array([int(one.mean() > 4) for one in items])}


@pytest.mark.slow
@pytest.mark.parametrize("model", ["own.py:Tokens", "lstm", "transformer"])
def test_unequal_sequences_of_a_file_train_resume_and_predict(tmp_path: Path, model: str) -> None:
    write_arrays(tmp_path / "texts.npz", **texts())
    table = '{kind="npz", path="texts.npz", tokens=true, offsets="offsets", validation=10, test_items=8}'
    sets = job(tmp_path, f'{{name="{model}"}}', table)
    run = train(tmp_path, *sets, *[SIMULATED] * (model != "own.py:Tokens"))
    resume(round_file(run, 2), "--out", tmp_path / "again", "--trust-code")
    assert newest(tmp_path / "again") == newest(run)
    new = write_arrays(tmp_path / "new.npz", **texts())
    said = partrain("predict", run, "-i", new, "--json", "--trust-code")
    assert len(json.loads(said.out)["label"]) == 60
    long = write_arrays(tmp_path / "long.npz", inputs=np.arange(9) % 9, offsets=np.array([0, 9]))
    assert (
        "an item has 9 elements, and the network was built for at most 7"
        in partrain("predict", run, "-i", long, "--trust-code").err
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lstm", "transformer"])
def test_language_ignores_padding(tmp_path: Path, name: str) -> None:
    """Perplexity counts each token once, the judged loss each item once."""
    sets = job(tmp_path, f'{{name="{name}"}}', '{name="own.py:words", language=true, validation=20}', SIMULATED)
    run = train(tmp_path, *sets)
    judged = json.loads(partrain("evaluate", run, "--json", "--trust-code").out)["validation"]
    assert judged["loss"] == pytest.approx(summary(run)["best"]["loss"], rel=1e-5)
    assert 20 <= judged["tokens"] < 20 * 9


@pytest.mark.slow
@pytest.mark.parametrize("format", ["safetensors", "torch-export", "onnx"])
@pytest.mark.parametrize(
    ("model", "data"), [("own.py:Both", "Data"), ("own.py:OneDict", "Data"), ("own.py:Clash", "Data"), ("own.py:Tokens", "words"), ("transformer", "words"), ("gru", "words")]
)  # fmt: skip
def test_export(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, format: str, model: str, data: str
) -> None:
    if format == "onnx":
        keep_onnx_registry(monkeypatch)

    def trained(folder: Path) -> None:
        train(folder, *job(folder, f'{{name="{model}"}}', f'{{name="own.py:{data}", validation=20}}', "stop.rounds=1", SIMULATED))

    run = once(tmp_path_factory, f"inputs-{model.rpartition(':')[2]}", trained) / "run"
    said = partrain("export", run, "--format", format, "-o", tmp_path / "out.bin", "--trust-code")
    if "OneDict" in model and format != "safetensors":
        assert "`forward` takes all inputs as one dict or tuple" in said.err
    elif "Clash" in model and format != "safetensors":
        assert "the input `meta` and the layer `self.meta` have one name" in said.err
    else:
        assert said.code == 0, said


@pytest.mark.slow
def test_a_mapped_file_keeps_the_inputs(tmp_path: Path) -> None:
    write_arrays(tmp_path / "items.npz", **image_and_meta())
    table = '{kind="npz", path="items.npz", inputs=["image", "meta"], validation=10, test_items=12}'
    first = train(tmp_path, *job(tmp_path, '{name="own.py:Both"}', table, SIMULATED))
    assert partrain("data", "convert", tmp_path / "job.toml", "-o", tmp_path / "items.ptitems").code == 0
    again = tmp_path / "again"
    mapped = f'{{kind="mapped", path="{tmp_path}/items.ptitems", validation=10}}'
    second = train(again, *job(again, '{name="own.py:Both"}', mapped, SIMULATED))
    assert summary(first)["test"] == summary(second)["test"]
    assert "image uint8 (4, 4), meta float32 (3,)" in partrain("data", "inspect", tmp_path / "items.ptitems").out
