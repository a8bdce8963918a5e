"""`partrain export --with-preprocessing` and `--card`: raw values in, the answers of `predict` out, without partrain."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.runs import SIMULATED, partrain
from support.sample_tables import passengers

from partrain.checkpoint.manifest import manifest_of
from partrain.data.codec import Codec
from partrain.data.tables.files import CsvFile
from partrain.errors import CannotCreate, InputMissing
from partrain.inference.card import _row_of_a_table, _scores, _standing
from partrain.inference.export import Format
from partrain.inference.graph import Preprocessed
from partrain.inference.inputs.read import read
from partrain.inference.network import TrainedNetwork, load_network
from partrain.inference.open import load_job, open_checkpoint
from partrain.inference.predict import predict
from partrain.inference.preprocessed_export import export_preprocessed
from partrain.inference.preprocessing import InputType, Preprocessing
from partrain.preprocess.dates import DateColumn
from partrain.tasks import make
from partrain.training.stop import Progress

Runs = Callable[[str], Path]
Networks = Callable[[str], TrainedNetwork]
ROWS: list[dict[str, Any]] = [
    {"size": 9.5, "colour": "green"},
    {"size": 0.25, "colour": "red"},
    {"size": 4.75, "colour": "blue"},
]


def predicted(network: TrainedNetwork, folder: Path, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Answer rows of a table as `partrain predict` does."""
    path = folder / "rows.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return dict(predict(network, read(network, path), probabilities=network.kind.one_class).columns)


def computed(recipe: Preprocessing, **raw: Any) -> dict[str, torch.Tensor]:
    with torch.no_grad():
        return dict(Preprocessed(recipe).eval()(**({"inputs": raw} if recipe.names else raw)))


def rows_as_tensors(recipe: Preprocessing, rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Return the inputs of the graph: numbers, seconds since 1970, codes of words."""
    assert recipe.table
    found: dict[str, torch.Tensor] = {}
    if "numbers" in recipe.table:
        truth = {"true": 1.0, "false": 0.0}
        numbers = [[truth.get(str(row[name]).lower(), row[name]) for name in recipe.table["numbers"]] for row in rows]
        found["numbers"] = torch.tensor(
            [[float(one) if one != "" else np.nan for one in row] for row in numbers], dtype=torch.float64
        )
    if "dates" in recipe.table:
        moments = [[np.datetime64(row[name] or "NaT", "s") for name in recipe.table["dates"]] for row in rows]
        seconds = [[np.nan if np.isnat(one) else float(one.astype(np.int64)) for one in row] for row in moments]
        found["dates"] = torch.tensor(seconds, dtype=torch.float64)
    if recipe.words:
        codes = [
            [
                -2 if row[name] == "" else known.index(row[name]) if row[name] in known else -1
                for name, known in recipe.words.items()
            ]
            for row in rows
        ]
        found["codes"] = torch.tensor(codes)
    return found


def test_rows_of_a_table_become_probabilities(network_of: Networks, tmp_path: Path) -> None:
    recipe = Preprocessing.of(network_of("tabular"))
    found, expected = computed(recipe, **rows_as_tensors(recipe, ROWS)), predicted(recipe.network, tmp_path, ROWS)
    np.testing.assert_array_equal(found["probabilities"].numpy(), expected["probability"])
    np.testing.assert_array_equal(found["label"].numpy(), expected["label"])
    assert found["label"][0] == 0  # large


def test_answers_are_in_the_units_of_the_target(network_of: Networks, tmp_path: Path) -> None:
    recipe = Preprocessing.of(network_of("prices"))
    found, expected = computed(recipe, **rows_as_tensors(recipe, ROWS)), predicted(recipe.network, tmp_path, ROWS)
    np.testing.assert_allclose(found["answers"].numpy(), expected["answer"], rtol=1e-6)
    assert found["answers"].max() > 5000


PASSENGERS: list[dict[str, Any]] = [
    {"sex": "male", "age": 30.5, "port": "Cherbourg", "member": "true", "born": "1981-12-31", "seen": "2012-04-15T02:20:00"},
    {"sex": "", "age": "", "port": "", "member": "False", "born": "", "seen": "2012-02-29"},
    {"sex": "other", "age": 0.25, "port": "Belfast", "member": "TRUE", "born": "1900-03-01", "seen": "2000-12-31T23:59:59"},
    {"sex": "female", "age": "", "port": "Southampton", "member": "false", "born": "2000-02-29", "seen": "1969-12-31T12:00:01"},
]
"""Rows with missing and unseen words, missing numbers and dates, truth values, and dates around leap days."""
WITHOUT: list[dict[str, Any]] = [
    {**row, "survived": one} for row, one in zip(PASSENGERS, ["no", "yes", "maybe", "no"], strict=True)
]
"""The same rows as inputs of another network. One of its inputs says who survived."""
RAW = {"titanic": PASSENGERS, "both": [row | {"sex": row["sex"] or "male"} for row in WITHOUT]}


@pytest.mark.parametrize("name", ["titanic", "both"])
def test_missing_and_unseen_cells_become_what_predict_makes_of_them(network_of: Networks, tmp_path: Path, name: str) -> None:
    recipe = Preprocessing.of(network_of(name))
    found, expected = computed(recipe, **rows_as_tensors(recipe, RAW[name])), predicted(recipe.network, tmp_path, RAW[name])
    if name == "both":
        np.testing.assert_allclose(found["answers"].numpy(), expected["answer"], rtol=1e-6)
        assert found["answers"].shape == (4, 2)
    else:
        np.testing.assert_allclose(found["probabilities"].numpy(), expected["probability"], rtol=1e-6)
        np.testing.assert_array_equal(found["label"].numpy(), expected["label"])


def test_parts_of_dates_are_those_of_the_data_set(tmp_path: Path) -> None:
    """Each day of 9 years around 1900 and 2000, and moments of ten thousand years."""
    draw = np.random.default_rng(0)
    days = [*range(-26_000, -22_800), *range(10_500, 13_700), *draw.integers(-719_162, 2_932_896, 2000).tolist()]
    moments = [datetime(1970, 1, 1) + timedelta(day, int(draw.integers(86_400))) for day in days]
    seconds = torch.tensor([[(moment - datetime(1970, 1, 1)).total_seconds()] for moment in moments], dtype=torch.float64)
    (tmp_path / "moments.csv").write_text("at\n" + "\n".join(moment.isoformat() for moment in moments) + "\n")
    table = CsvFile(tmp_path / "moments.csv")
    (block,) = table.blocks(["at"])
    for clock in False, True:
        kind = DateColumn(clock)
        raw = np.array(kind.raw(block, "at", holes=False))
        np.testing.assert_array_equal(raw, seconds[:, 0])
        np.testing.assert_allclose(kind.compute(torch, seconds[:, 0]).numpy(), expected(moments, clock), rtol=1e-15, atol=1e-14)
        np.testing.assert_array_equal(kind.compute(np, raw), expected(moments, clock))


def expected(moments: list[datetime], clock: bool) -> np.ndarray[Any, Any]:
    """Parts of dates by the calendar of Python."""
    rows = []
    for moment in moments:
        day = (moment.hour + moment.minute / 60 + moment.second / 3600) / 24
        shares = [(moment.timetuple().tm_yday - 1) / 365.25, moment.weekday() / 7, *[day] * clock]
        waves = [wave(2 * math.pi * share) for share in shares for wave in (math.sin, math.cos)]
        rows.append([moment.toordinal() - datetime(1970, 1, 1).toordinal() + day * clock, *waves])
    return np.array(rows)


def test_items_that_predict_refuses_get_no_answer(network_of: Networks) -> None:
    """A missing word or number, a number beyond float32 and a code of no word: NaN and -1, and the other rows are answered."""
    for name in "tabular", "prices":
        recipe = Preprocessing.of(network_of(name))
        raw = rows_as_tensors(
            recipe,
            [
                {"size": 5.0, "colour": ""},
                {"size": "", "colour": "red"},
                {"size": 1e300, "colour": "red"},
                {"size": 5.0, "colour": "red"},
                ROWS[0],
            ],
        )
        raw["codes"][3, 0] = 3
        found = computed(recipe, **raw)
        answers = found.get("probabilities", found.get("answers"))
        assert answers is not None
        assert answers.isnan().all(1).tolist() == [True, True, True, True, False]
        if "label" in found:
            assert found["label"].tolist() == [-1, -1, -1, -1, 0]


BOUNDS = [0.0, 1e30, 1e36, 3.4e37, 3.4e38, 3.5e38, 1.5e39, 1e150, 1e300, math.inf, math.nan]
BOUNDS += [-value for value in BOUNDS[1:-1]]


def steep(network: TrainedNetwork, factor: float) -> TrainedNetwork:
    """Return a network whose numbers overflow at smaller items."""
    module = deepcopy(network.module)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(factor)
    return replace(network, module=module)


def wide(network: TrainedNetwork, std: float) -> TrainedNetwork:
    """Return a network whose answers overflow in the units of the target."""
    return replace(network, codec=Codec(network.codec.stored | {"target_std": [std]}))


def answers_at_bounds(network: TrainedNetwork, folder: Path, compute: Callable[..., Any]) -> tuple[list[bool], list[bool]]:
    """Return whether `predict`, and whether `compute`, a graph, answer items of which one number is each of BOUNDS."""
    recipe = Preprocessing.of(network, None)
    read_by_predict, answered_by_graph = [], []
    for value in BOUNDS:
        if network.codec.stored.get("form") == "table":
            row = {"size": value, "colour": "red"}
            (folder / "rows.csv").write_text(f"size,colour\n{value!r},red\n")
            path, raw = folder / "rows.csv", {name: each.numpy() for name, each in rows_as_tensors(recipe, [row]).items()}
        else:
            path, raw = folder / "rows.npy", {"inputs": recipe.sample(1)[0]["inputs"].astype(np.float64)}
            raw["inputs"].flat[-1] = value
            np.save(path, raw["inputs"])
            if recipe.continues:
                (folder / "rows.csv").write_text(
                    "\n".join(
                        [
                            "day,sold,made",
                            *(f"{date(2024, 1, 1 + at)},{a!r},{b!r}" for at, (a, b) in enumerate(raw["inputs"][0].tolist())),
                        ]
                    )
                )
                path = folder / "rows.csv"
        try:
            predict(network, read(network, path), probabilities=network.kind.has_probabilities)
        except InputMissing:
            read_by_predict.append(False)
        else:
            read_by_predict.append(True)
        found = {name: np.asarray(each) for name, each in compute(raw).items()}
        label = found.pop("label", None)
        answered = np.isfinite(next(iter(found.values()))).all()
        assert label is None or answered == (label >= 0).all()
        assert answered or np.isnan(next(iter(found.values()))).all()
        answered_by_graph.append(bool(answered))
    return read_by_predict, answered_by_graph


AT_BOUNDS: dict[str, Callable[[Networks], TrainedNetwork]] = {
    "prices": lambda network_of: network_of("prices"),
    "filled": lambda network_of: replace(
        network_of("prices"), codec=Codec(network_of("prices").codec.stored | {"missing": "mean"})
    ),
    "overflows inside": lambda network_of: steep(network_of("prices"), 300),
    "overflows in units": lambda network_of: wide(network_of("prices"), 1e300),
    "classes": lambda network_of: steep(network_of("tabular"), 300),
    "several labels": lambda network_of: steep(network_of("labels"), 300),
    "windows": lambda network_of: steep(network_of("spots"), 300),
    "errors": lambda network_of: network_of("windows"),
    "differences": lambda network_of: network_of("sales"),
}


@pytest.mark.parametrize("case", AT_BOUNDS)
def test_a_graph_answers_the_items_that_predict_answers(network_of: Networks, tmp_path: Path, case: str) -> None:
    network = AT_BOUNDS[case](network_of)
    recipe = Preprocessing.of(network)

    def compute(raw: dict[str, Any]) -> dict[str, Any]:
        return computed(recipe, **{name: torch.from_numpy(each) for name, each in raw.items()})

    by_predict, by_graph = answers_at_bounds(network, tmp_path, compute)
    assert by_graph == by_predict
    assert by_predict[0]


@pytest.mark.slow
@pytest.mark.usefixtures("onnx_registry")
@pytest.mark.parametrize("case", AT_BOUNDS)
def test_onnxruntime_answers_the_items_that_predict_answers(network_of: Networks, tmp_path: Path, case: str) -> None:
    import onnxruntime

    network = AT_BOUNDS[case](network_of)
    data, _ = export_preprocessed(Preprocessing.of(network), "onnx")
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_outputs()]

    def compute(raw: dict[str, Any]) -> dict[str, Any]:
        if "codes" in raw:
            raw = raw | {"words": np.array([["red"]], object)}
        wanted = {one.name for one in session.get_inputs()}
        found = session.run(names, {name: each for name, each in raw.items() if name in wanted})
        return {name: each for name, each in zip(names, found, strict=True) if name != "class"}

    by_predict, by_graph = answers_at_bounds(network, tmp_path, compute)
    assert by_graph == by_predict


def test_dates_that_predict_refuses_get_no_answer(network_of: Networks) -> None:
    recipe = Preprocessing.of(network_of("titanic"))
    raw = rows_as_tensors(recipe, PASSENGERS[:1] * 4)
    raw["dates"][1, 0], raw["dates"][2, 1], raw["dates"][3, 0] = torch.inf, torch.nan, 1e12
    assert computed(recipe, **raw)["probabilities"].isnan().all(1).tolist() == [False, True, True, True]


def test_missing_numbers_are_filled_in(network_of: Networks) -> None:
    network = network_of("tabular")
    recipe = Preprocessing.of(replace(network, codec=Codec(network.codec.stored | {"missing": "mean"})))
    hole = computed(recipe, **rows_as_tensors(recipe, [{"size": "", "colour": "red"}]))
    filled = computed(recipe, **rows_as_tensors(recipe, [{"size": network.codec.stored["fill"][0], "colour": "red"}]))
    assert torch.equal(hole["probabilities"], filled["probabilities"])
    _, expected = recipe.sample(10)  # some cells of the sample are empty, and `predict` answers them
    assert len(expected["item"]) == 10


def test_forecasts_of_differences_are_values(network_of: Networks, tmp_path: Path) -> None:
    """The graph takes the file's values, the moments before a window included, and continues them."""
    recipe = Preprocessing.of(network_of("sales"))
    values = [[1000.0 + 3 * row + row * row / 9, 500.0 - row] for row in range(13)]
    lines = ["day,sold,made", *(f"2024-02-{20 + at},{sold!r},{made!r}" for at, (sold, made) in enumerate(values[:10]))]
    lines += [f"2024-03-0{at + 1},{sold!r},{made!r}" for at, (sold, made) in enumerate(values[10:])]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    expected = predict(recipe.network, read(recipe.network, tmp_path / "rows.csv")).columns
    assert recipe.describe(strings=True)["inputs"]["inputs"] == {"type": "float64", "shape": [13, 2], "columns": ["sold", "made"]}
    found = computed(recipe, inputs=torch.tensor([values], dtype=torch.float64))["answers"].reshape(3, 2)
    np.testing.assert_allclose(found.numpy(), np.stack([expected["made"], expected["sold"]], 1), rtol=1e-12)
    assert recipe.describe(strings=True)["outputs"]["answers"]["names"][:2] == ["made+1", "sold+1"]
    hole = torch.tensor([values], dtype=torch.float64)
    hole[0, 0, 1] = torch.nan
    assert computed(recipe, inputs=hole)["answers"].isnan().all()


@pytest.mark.slow
@pytest.mark.usefixtures("onnx_registry")
def test_graphs_and_predict_take_class_weights_from_the_probabilities(network_of: Networks) -> None:
    plain = Preprocessing.of(network_of("clouds"))
    weights = [0.5, 20.0, 1.0]
    recipe = Preprocessing.of(replace(plain.network, task=make(None, "classification", Path(), weights)))
    (raw, expected), (_, weighted) = recipe.sample(10), plain.sample(10)
    shares = np.asarray(weighted["probability"]) / weights
    np.testing.assert_allclose(expected["probability"], shares / shares.sum(1, keepdims=True), rtol=1e-5)
    np.testing.assert_array_equal(expected["label"], weighted["label"])
    found = computed(recipe, **{name: torch.from_numpy(values) for name, values in raw.items()})
    np.testing.assert_allclose(found["probabilities"].numpy(), expected["probability"], rtol=1e-6)
    for format in "onnx", "torch-export":
        assert export_preprocessed(recipe, format)[1]["items"] == 10


ARRAYS = ["pixels", "maps", "pair", "labels", "tokens", "unequal", "ragged"]


@pytest.mark.parametrize("name", ["clouds", "spots", "windows", "codes", "own", "sales", "holes", "changes", *ARRAYS])
def test_other_items(network_of: Networks, name: str) -> None:
    recipe = Preprocessing.of(network_of(name))
    raw, expected = recipe.sample(10)
    found = computed(recipe, **{name: torch.from_numpy(values) for name, values in raw.items()})
    column = {"probabilities": "probability", "error": "error", "answers": "answer"}[recipe.outputs[0]]
    np.testing.assert_allclose(found[recipe.outputs[0]].numpy(), expected[column], rtol=1e-6, atol=1e-7)
    if "label" in recipe.outputs:
        np.testing.assert_array_equal(found["label"].numpy(), expected["label"])


def test_tokens_and_lengths_that_predict_refuses_get_no_answer(network_of: Networks) -> None:
    tokens = computed(
        Preprocessing.of(network_of("tokens")), inputs=torch.tensor([[0, 1, 2, 3, 4, 4], [0, 1, 2, 3, 5, 0], [-1, 0, 0, 0, 0, 0]])
    )
    assert tokens["label"][1:].tolist() == [-1, -1]
    assert tokens["probabilities"].isnan().all(1).tolist() == [False, True, True]
    some = {"inputs": torch.zeros(3, 6, dtype=torch.int64), "lengths": torch.tensor([6, 0, 7])}
    assert computed(Preprocessing.of(network_of("unequal")), **some)["label"][1:].tolist() == [-1, -1]
    hole = {"image": torch.zeros(2, 1, 4, 4, dtype=torch.uint8), "numbers": torch.tensor([[1.0, 2, 3], [1, torch.nan, 3]])}
    assert computed(Preprocessing.of(network_of("pair")), **hole)["label"].tolist()[1] == -1


@pytest.mark.parametrize("name", ARRAYS)
def test_graphs_of_arrays_are_those_of_torch_export(network_of: Networks, name: str) -> None:
    """`export_preprocessed` compares the loaded program with `predict`, and refuses another."""
    assert export_preprocessed(Preprocessing.of(network_of(name)), "torch-export")[1]["items"] == 10


@pytest.mark.slow
@pytest.mark.usefixtures("onnx_registry")
def test_onnx_takes_several_inputs_by_name(network_of: Networks) -> None:
    import onnxruntime

    recipe = Preprocessing.of(network_of("pair"))
    data, compared = export_preprocessed(recipe, "onnx")
    assert compared["items"] == 10
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    assert [(one.name, one.type) for one in session.get_inputs()] == [("image", "tensor(uint8)"), ("numbers", "tensor(double)")]
    assert [one.name for one in session.get_outputs()] == ["probabilities", "label"]


def test_bytes_of_images_are_scaled(network_of: Networks) -> None:
    network = network_of("clouds")
    recipe = Preprocessing.of(network, "uint8")
    raw, expected = recipe.sample(10)
    assert raw["inputs"].dtype == np.uint8
    found = computed(recipe, inputs=torch.from_numpy(raw["inputs"]))
    np.testing.assert_allclose(found["probabilities"].numpy(), expected["probability"], rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "codec", "type", "what"),
    [
        ("rose", {}, None, "it continues texts"),
        ("tabular", {}, "uint8", "its items are no bytes"),
    ],
)
def test_a_graph_that_would_be_wrong_is_refused(
    network_of: Networks, name: str, codec: dict[str, Any], type: InputType | None, what: str
) -> None:
    network = network_of(name)
    with pytest.raises(CannotCreate, match=what):
        Preprocessing.of(replace(network, codec=Codec(network.codec.stored | codec)), type)


def test_formats_without_computation_are_refused(run_of: Runs, tmp_path: Path) -> None:
    said = partrain("export", run_of("tabular"), "-f", "safetensors", "-o", tmp_path / "out", "--with-preprocessing")
    assert (said.code, said.errors) == (73, ["cannot-create"])
    assert "onnx or torch-export" in said.err
    said = partrain("export", run_of("tabular"), "-f", "onnx", "-o", tmp_path / "out", "--input-type", "uint8")
    assert said.code == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.usefixtures("onnx_registry")
def test_onnx_takes_words_and_names_classes(run_of: Runs, network_of: Networks, tmp_path: Path) -> None:
    import onnxruntime

    output = tmp_path / "out.onnx"
    said = partrain("export", run_of("tabular"), "-f", "onnx", "-o", output, "--with-preprocessing", "--json")
    assert (said.code, said.err) == (0, "")
    told = json.loads(said.out)
    assert told["largest_difference"] <= told["tolerance"]
    session = onnxruntime.InferenceSession(output, providers=["CPUExecutionProvider"])
    assert json.loads(session.get_modelmeta().custom_metadata_map["partrain"]) == told["facts"]
    facts = told["facts"]["preprocessing"]
    feed = {
        "numbers": np.array([[row[name] for name in facts["inputs"]["numbers"]["columns"]] for row in ROWS]),
        "words": np.array([[row[name] for name in facts["inputs"]["words"]["columns"]] for row in ROWS], object),
    }
    found = dict(zip(facts["outputs"], session.run(list(facts["outputs"]), feed), strict=True))
    expected = predicted(network_of("tabular"), tmp_path, ROWS)
    np.testing.assert_allclose(found["probabilities"], expected["probability"], rtol=1e-5)
    assert found["class"].tolist() == expected["class"]
    feed["words"][0, 0] = "n/A"  # no value, which this job does not fill in
    probabilities, label, name = session.run(["probabilities", "label", "class"], feed)
    assert np.isnan(probabilities[0]).all()
    assert (label[0], name[0]) == (-1, "")
    assert name[1:].tolist() == expected["class"][1:]


@pytest.mark.slow
@pytest.mark.usefixtures("onnx_registry")
def test_onnx_takes_codes_of_words_without_operators_of_text(run_of: Runs, network_of: Networks, tmp_path: Path) -> None:
    """Other runtimes lack ai.onnx.ml, and IsNaN and IsInf of numbers in double precision."""
    import onnx

    from partrain.inference.export import onnx_session

    output = tmp_path / "out.onnx"
    said = partrain("export", run_of("tabular"), "-f", "onnx", "-o", output, "--with-preprocessing", "--words", "codes", "--json")
    assert (said.code, said.err) == (0, "")
    facts = json.loads(said.out)["facts"]["preprocessing"]
    assert (list(facts["inputs"]), facts["inputs"]["codes"]["words"]) == (
        ["numbers", "codes"],
        {"colour": ["blue", "green", "red"]},
    )
    assert list(facts["outputs"]) == ["probabilities", "label"]
    model = onnx.load(output)
    assert not any(node.domain for node in model.graph.node)
    casts = [
        node.output[0] for node in model.graph.node if node.op_type == "Cast" and node.attribute[0].i == onnx.TensorProto.FLOAT
    ]
    tests = [node.input[0] for node in model.graph.node if node.op_type in ("IsNaN", "IsInf")]
    assert set(tests) <= set(casts)
    network = network_of("tabular")
    feed = {name: tensor.numpy() for name, tensor in rows_as_tensors(Preprocessing.of(network), ROWS).items()}
    probabilities, _ = onnx_session(output.read_bytes()).run(None, feed)
    np.testing.assert_allclose(probabilities, predicted(network, tmp_path, ROWS)["probability"], rtol=1e-5)


def test_text_that_a_graph_cannot_take_is_refused(run_of: Runs, network_of: Networks, tmp_path: Path) -> None:
    with pytest.raises(CannotCreate, match="torch-export has no tensors of text"):
        export_preprocessed(Preprocessing.of(network_of("tabular"), words_as="text"), "torch-export")
    assert partrain("export", run_of("tabular"), "-f", "onnx", "-o", tmp_path / "out", "--words", "codes").code == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["sales", "titanic"])
def test_an_empty_batch_has_empty_answers(network_of: Networks, name: str) -> None:
    """Steps of a differenced series, and of dates, are none for reshapes that guess an axis."""
    recipe = Preprocessing.of(network_of(name))
    data, verified = export_preprocessed(recipe, "torch-export")
    raw = {name: torch.from_numpy(values[:0]) for name, values in recipe.sample(1)[0].items()}
    answers = torch.export.load(io.BytesIO(data)).module()(**raw)
    assert ({len(rows) for rows in answers.values()}, verified["fewest_items"]) == ({0}, 0)


@pytest.mark.slow
@pytest.mark.usefixtures("onnx_registry")
def test_a_table_as_init_reads_it_becomes_an_onnx_graph(tmp_path: Path) -> None:
    """`init --from`, `run` and `export` with words, dates and holes; onnxruntime answers raw rows as `predict` does."""
    import onnxruntime

    passengers(tmp_path / "passengers.csv", 300)
    job, output = tmp_path / "job.toml", tmp_path / "out.onnx"
    assert partrain("init", job, "--from", tmp_path / "passengers.csv", "--target", "survived").code == 0
    assert 'name = "tabular"' in job.read_text()
    assert "categories = [" in job.read_text()
    said = partrain("run", job, "--set", "stop.rounds=2", "--set", SIMULATED, "--out", tmp_path / "run")
    assert said.code == 0, said.err
    said = partrain("export", tmp_path / "run", "-f", "onnx", "-o", output, "--with-preprocessing", "--json")
    assert said.code == 0, said.err
    inputs = json.loads(said.out)["facts"]["preprocessing"]["inputs"]
    path, content = open_checkpoint(tmp_path / "run")
    network = load_network(load_job(content, path, trusted=True), content)
    rows = [row | {"fare": 9.5, "weight": 70} for row in PASSENGERS]
    raw = rows_as_tensors(Preprocessing.of(network), rows)
    feed = {"numbers": raw["numbers"].numpy(), "dates": raw["dates"].numpy()}
    feed["words"] = np.array([[row[name] for name in inputs["words"]["columns"]] for row in rows], object)
    session = onnxruntime.InferenceSession(output, providers=["CPUExecutionProvider"])
    probabilities, names = session.run(["probabilities", "class"], feed)
    expected = predicted(network, tmp_path, rows)
    np.testing.assert_allclose(probabilities, expected["probability"], rtol=1e-4, atol=1e-6)
    assert names.tolist() == expected["class"]


IN_ONNX = ["titanic", "both", "sales", "codes", "maps", "labels", "tokens", "unequal", "ragged"]
IN_TORCH = ["tabular", "prices", "spots", "holes", "changes", "clouds"]
GRAPHS = [
    pytest.param(name, format, marks=() if name in often else pytest.mark.soak)
    for format, often in (("onnx", IN_ONNX), ("torch-export", IN_TORCH))
    for name in (*IN_ONNX, *IN_TORCH, "pixels")
    if format == "onnx" or name not in ARRAYS
]
"""Each network in one format; in both in the soak. Tests above have the arrays in torch-export, and `pair` in ONNX."""


@pytest.mark.slow
@pytest.mark.usefixtures("onnx_registry")
@pytest.mark.parametrize(("name", "format"), GRAPHS)
def test_every_graph_is_compared_with_predict(network_of: Networks, name: str, format: Format) -> None:
    assert export_preprocessed(Preprocessing.of(network_of(name)), format)[1]["items"] == 10


def test_the_card_says_what_the_checkpoint_holds(run_of: Runs, tmp_path: Path) -> None:
    run = run_of("tabular")
    said = partrain("export", run, "-f", "safetensors", "-o", tmp_path / "out.safetensors", "--card")
    assert said.code == 0
    text = (tmp_path / "out.md").read_text()
    summary = json.loads((run / "summary.json").read_text())
    assert text.startswith("---\nlibrary_name: pytorch\ntags:\n")
    for heading in ("Model details", "Intended use", "Factors", "Metrics", "Evaluation data", "Training data"):
        assert f"\n## {heading}\n" in text
    assert f"| item-iterations | {summary['item_iterations']:,} |" in text
    assert f"| test loss, round {summary['tested_round']} | {summary['test']['loss']:.6g} |" in text
    assert "| classes | large, small |" in text
    assert "| checkpoint | `best.h5` (the best judged round), run " in text
    assert "| source | `table.csv` |" in text  # as in the job: the folders of this machine concern nobody else
    assert "Judged on 20 items held out of training." in text
    assert '`safetensors.torch.load_file("out.safetensors")`\n\nInputs: float32 (items, ' in text
    again = partrain("export", run, "-f", "safetensors", "-o", tmp_path / "other.safetensors", "--card")
    assert again.code == 0
    (tmp_path / "third.md").write_text("mine")
    said = partrain("export", run, "-f", "safetensors", "-o", tmp_path / "third.safetensors", "--card")
    assert (said.code, said.errors) == (73, ["cannot-create"])
    assert (tmp_path / "third.md").read_text() == "mine"
    assert not (tmp_path / "third.safetensors").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("onnx_registry")
@pytest.mark.parametrize("file_format", ["torch-export", "onnx"])
def test_the_lines_of_a_card_read_a_row(
    run_of: Runs, network_of: Networks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_format: Format
) -> None:
    said = partrain("export", run_of("titanic"), "-f", file_format, "-o", tmp_path / "out.pt2", "--with-preprocessing", "--card")
    assert said.code == 0, said
    lines = (tmp_path / "out.md").read_text().split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    for row in PASSENGERS:
        with open("rows.csv", "w", newline="") as file:
            writer = csv.DictWriter(file, list(row))
            writer.writeheader()
            writer.writerow(row)
        names: dict[str, Any] = {}
        exec(lines.replace("print(", "answer = ("), names)
        expected = predicted(network_of("titanic"), tmp_path, [row])["probability"]
        np.testing.assert_allclose(np.asarray(names["answer"]["probabilities"]), expected, rtol=1e-5)


def test_the_lines_of_a_card_name_the_notation_that_they_do_not_read(network_of: Networks) -> None:
    network = network_of("tabular")
    made: Any = SimpleNamespace(
        format="torch-export", output=Path("out.pt2"), facts={"preprocessing": {"inputs": {"numbers": {}}}}
    )
    assert "A row of a CSV file as inputs, and the answer to it:" in _row_of_a_table(network, made)
    keys = {"separator": ";", "decimal": ",", "date_format": ["%d.%m.%Y"]}
    job = network.loaded.job.model_copy(update={"dataset": network.loaded.job.dataset.model_copy(update=keys)})
    other = replace(network, loaded=replace(network.loaded, job=job))
    text = _row_of_a_table(other, made)
    assert 'delimiter=";"' in text
    assert 'nothing for a missing value (the data set has `decimal` ",", `date_format` ["%d.%m.%Y"]):' in text


def test_a_card_tells_the_best_round_from_the_last(run_of: Runs, tmp_path: Path) -> None:
    _, content = open_checkpoint(run_of("tabular"))
    progress = Progress(
        content.round, 100, judged_round=content.round, loss=0.5, accuracy=0.7, best=0.8, best_round=3, lead=0.8, misses=1
    )
    manifest = manifest_of(content).model_copy(update={"progress": progress})
    told = {
        "rounds": content.round,
        "tested_round": content.round,
        "metrics": {"accuracy": 0.7, "f1": 0.6},
        "best": {"round": 3, "loss": 0.4, "metrics": {"accuracy": 0.8, "f1": 0.75}},
        "test": {"loss": 0.45},
        "comparisons": {"constant": {"by": "mae", "network": 0.3, "trivial": 0.6, "r2": 0.7}},
    }
    last = content.round
    summary = tmp_path / "summary.json"
    summary.write_text(json.dumps(told))
    scores = _scores(manifest, content, tmp_path / "checkpoint.h5")
    assert scores.pop(f"training loss, round {last}")
    assert scores == {
        f"judged accuracy, round {last}": "0.7",
        f"judged f1, round {last}": "0.6",
        f"judged loss, round {last}": "0.5",
        "judged loss, round 3, the best": "0.4",
        "judged accuracy, round 3, the best": "0.8",
        "judged f1, round 3, the best": "0.75",
        f"test loss, round {last}": "0.45",
        f"test mae, round {last}": "0.3",
        f"test r2, round {last}": "0.7",
    }
    assert _standing(manifest) == " (round 3 was the best)"
    summary.write_text(
        json.dumps(told | {"rounds": last + 1, "tested_round": last + 1, "best": None})
    )  # of a later round: these results are not its own
    scores = _scores(manifest, content, tmp_path / "checkpoint.h5")
    assert [name for name in scores if "f1" in name or "test" in name] == []
    assert scores["judged result, round 3, the best"] == "0.8"


def test_a_card_says_in_which_unit_losses_are(run_of: Runs, tmp_path: Path) -> None:
    for name, what in (
        ("prices", "standardized targets; one unit is a standard deviation: `price` "),
        ("sales", "differences of the"),
    ):
        output = tmp_path / name
        assert partrain("export", run_of(name), "-f", "safetensors", "-o", output, "--card").code == 0
        assert what in output.with_suffix(".md").read_text()
    assert "| differences at lags | 1, 4 |" in (tmp_path / "sales.md").read_text()


def test_a_text_network_has_a_card(run_of: Runs, tmp_path: Path) -> None:
    assert partrain("export", run_of("rose"), "-f", "state-dict", "-o", tmp_path / "out.pt", "--card").code == 0
    assert '`torch.load("out.pt", weights_only=True)`' in (tmp_path / "out.md").read_text()


@pytest.mark.slow
def test_answers_to_counts_are_counts(tmp_path: Path) -> None:
    """The network of a Poisson loss answers with logarithms; `export` compares the graph with `predict` before it writes."""
    rows = "".join(f"{number % 7},{number % 3},{number % 7 + number % 3}\n" for number in range(120))
    (tmp_path / "counts.csv").write_text(f"a,b,y\n{rows}")
    (tmp_path / "job.toml").write_text(
        'name = "counts"\n[model]\nname = "mlp"\nhidden = [4]\n[dataset]\nkind = "csv"\npath = "counts.csv"\ntarget = "y"\n'
        'target_kind = "number"\nvalidation = 20\n[task]\nloss = "poisson"\n[optimizer]\nname = "adam"\nlr = 0.01\nbatch_size = 10\n'
        '[sync]\nrule = "average"\niterations = 3\n[[workers]]\ncount = 2\n[stop]\nrounds = 3\n'
    )
    run = tmp_path / "run"
    assert partrain("run", tmp_path / "job.toml", "--set", SIMULATED, "--out", run, "-q").code == 0
    output = tmp_path / "counts.pt2"
    said = partrain("export", run, "--format", "torch-export", "--with-preprocessing", "--output", output)
    assert (said.code, output.exists()) == (0, True), said
