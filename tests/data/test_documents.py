"""Texts and their classes: from a table and from folders, trained, answered and exported."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from support.runs import partrain, summary

import partrain as package
from partrain.config.section import Section
from partrain.data import load, read_spec
from partrain.data.documents import Documents, words_of
from partrain.data.partition import split
from partrain.preprocess.texts import count_words

WORDS = {"sport": "ball goal team match player coach", "money": "bank stock market price fund loan"}
JOB = """
name = "texts"
model = {name = "bag", embedding = 16, hidden = [16]}
dataset = %s
optimizer = {name = "adamw", lr = 0.01, batch_size = 16}
sync = {rule = "average", passes = 1}
workers = [{count = 2}]
transport = {kind = "simulated"}
stop = {rounds = 12, judge_every = 1}
"""
TABLE = (
    '{kind = "documents", path = "t.csv", text = "text", target = "topic", test_share = 0.2, validation = 30, stratify = true}'
)
FOLDER = '{kind = "documents", path = "texts", test_share = 0.2, validation = 30}'


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with 240 texts, as a table and as files."""
    monkeypatch.chdir(tmp_path)
    draw, rows = random.Random(0), ["nr,topic,text"]
    for item in range(240):
        topic = ("sport", "money")[item % 2]
        words = [
            draw.choice(WORDS[topic].split() if draw.random() < 0.4 else ["the", "a", "of", "is"])
            for _ in range(draw.randrange(5, 25))
        ]
        text = " ".join(words).capitalize() + "."
        rows.append(f'{item},{topic},"{text}"')
        (tmp_path / "texts" / topic).mkdir(parents=True, exist_ok=True)
        (tmp_path / "texts" / topic / f"{item:03}.txt").write_text(text)
    (tmp_path / "t.csv").write_text("\n".join([*rows, ""]))
    return tmp_path


def section(**keys: object) -> Section:
    return Documents.model_validate({"kind": "documents", "path": "t.csv", "text": "text", "target": "topic", **keys})


def test_tokens_are_words_in_small_letters() -> None:
    assert words_of("Don't PANIC, 42!") == ["don", "t", "panic", "42"]
    assert words_of("Das Café, 很好!") == ["das", "café", "很", "好"], "without spaces between words, letters"
    assert [count_words(text) for text in ("2026-11-30", "two words", "很好吃 ok", "")] == [1, 2, 4, 0]


def test_words_are_numbered_by_how_often_the_training_texts_have_them() -> None:
    rows = ["topic,text", 'a,"one two two"', 'b,"two one THREE"', 'a,"two one four"', 'b,""']
    Path("few.csv").write_text("\n".join([*rows, ""]))
    data = load(section(path="few.csv"), Path())
    assert data.codec["vocabulary"] == ["<unknown>", "two", "one"], "words of a single text are not known"
    assert data.item_shape == (3,)
    tokens, lengths = (data.inputs[:, part.offset : part.end].copy().view("int64").tolist() for part in data.parts)
    assert tokens == [[2, 1, 1], [1, 2, 0], [1, 2, 0], [0, 0, 0]]
    assert lengths == [[3], [3], [3], [1]]
    assert data.targets.tolist() == [0, 1, 0, 1]
    only = load(section(path="few.csv"), Path(), training=lambda items, labels=None, gap=None: [0, 3])
    assert only.codec["vocabulary"] == ["<unknown>"], "words are those of training texts"
    assert load(section(path="few.csv", length=2, vocabulary=2), Path()).item_shape == (2,)


@pytest.mark.representative
@pytest.mark.parametrize(
    ("model", "dataset"),
    [
        pytest.param("bag", TABLE, id="bag-table"),
        pytest.param("bag", FOLDER, id="bag-folder"),
        pytest.param("gru", TABLE, id="gru-table"),
        pytest.param("gru", FOLDER, id="gru-folder", marks=pytest.mark.soak),
        pytest.param("transformer", TABLE, id="transformer-table", marks=pytest.mark.soak),
        pytest.param("transformer", FOLDER, id="transformer-folder"),
    ],
)
def test_texts_are_learned_and_answered(model: str, dataset: str) -> None:
    """A network gets the same items from either form of the data: the gate has each form and each network."""
    Path("job.toml").write_text(
        (JOB % dataset).replace('"bag", embedding = 16, hidden = [16]', f'"{model}"') if model != "bag" else JOB % dataset
    )
    said = partrain("run", "job.toml", "--out", "run", "-q")
    assert said.code == 0, said
    assert summary(Path("run"))["test"]["accuracy"] > 0.9
    found = json.loads(partrain("evaluate", "run", "--json").out)
    assert found["test"]["accuracy"] == summary(Path("run"))["test"]["accuracy"]
    whole = json.loads(partrain("evaluate", "run", "--input", "texts", "--json").out)["texts"]
    assert (whole["items"], whole["accuracy"] > 0.9) == (240, True)
    assert partrain("predict", "run", "--input", "texts/sport/000.txt").out.splitlines()[1].startswith("000.txt,1,sport")
    told = partrain("predict", "run", "--input", "t.csv", "--id", "nr")
    assert told.out.splitlines()[0] == "nr,label,class"
    assert len(told.out.splitlines()) == 241
    answers = package.load("run").predict(["Ball and goal for the team", "The bank has a loan"])
    assert answers.tolist() == ["sport", "money"] or model == "transformer"  # which has learned less of single words


def test_two_workers_resume_to_the_bit() -> None:
    Path("job.toml").write_text((JOB % TABLE).replace("simulated", "shared"))
    few = "--set", "stop.rounds=4"
    assert partrain("run", "job.toml", "--out", "whole", "-q", *few).code == 0
    assert partrain("run", "job.toml", "--out", "half", "-q", "--set", "stop.rounds=2").code == 0
    assert partrain("resume", "half", "--until", "rounds=4", "-q").code == 0
    assert partrain("diff", "whole", "half", "--newest").code == 0


def test_classes_are_chosen_and_a_test_file_has_its_own_texts() -> None:
    Path("more.csv").write_text("topic,text\nsport,ball\nodd,thing\nmoney,bank\n")
    data = load(section(classes=["sport", "money"], test_path="more.csv"), Path())
    assert data.codec["classes"] == ["sport", "money"]
    assert data.test_targets is not None
    assert data.test_targets.tolist() == [0, 1]
    chosen = Documents.model_validate(
        {
            "kind": "documents",
            "path": "t.csv",
            "text": "text",
            "target": "topic",
            "classes": ["sport", "money"],
            "validation_path": "more.csv",
            "test_share": 0.1,
        }
    )
    apart = load(chosen, Path())
    facts = read_spec(chosen, Path())
    assert facts is not None
    assert (facts.items, facts.test_items, facts.held_out) == (218, 24, 2)
    assert [part.tolist() for part in split(apart, chosen, "given", 0)] == [list(range(216)), [216, 217]]
    assert apart.targets[216:].tolist() == [0, 1]


def test_exports() -> None:
    Path("job.toml").write_text(JOB % TABLE)
    assert partrain("run", "job.toml", "--out", "run", "-q", "--set", "stop.rounds=1").code == 0
    assert partrain("export", "run", "-f", "safetensors", "-o", "net.safetensors").code == 0
    said = partrain("export", "run", "-f", "onnx", "-o", "net.onnx", "--with-preprocessing")
    assert said.code == 73
    assert "its words are numbered outside of the graph" in said.err


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ('kind = "documents", path = "t.csv"', "is no folder: `text` and `target` name columns"),
        (
            'kind = "documents", path = "texts", text = "text", target = "topic"',
            "is a folder, and `text` names the column of a table",
        ),
        ('kind = "documents", path = "t.csv", text = "text"', "`text` and `target` go together"),
        ('kind = "documents", path = "t.csv", text = "txt", target = "topic"', "no column `txt`"),
        (
            'kind = "documents", path = "t.csv", text = "text", target = "topic", classes = ["sport", "x"]',
            "no text has the class x",
        ),
        ('kind = "documents", path = "one.csv", text = "text", target = "topic"', "all texts have the class `a`"),
        ('kind = "documents", path = "hole.csv", text = "text", target = "topic"', "hole.csv:3: column `topic`: no class"),
        ('kind = "documents", path = "bad", ', "byte 0 is not UTF-8"),
        (
            'kind = "documents", path = "t.csv", text = "text", target = "topic", test_path = "odd.csv"',
            "the class `odd` is not in",
        ),
    ],
)
def test_mistakes(keys: str, message: str) -> None:
    Path("one.csv").write_text("topic,text\na,x\na,y\n")
    Path("hole.csv").write_text("topic,text\na,x\n,y\n")
    Path("odd.csv").write_text("topic,text\nodd,x\n")
    Path("bad/a").mkdir(parents=True)
    Path("bad/a/x.txt").write_bytes(b"\xff")
    Path("job.toml").write_text(JOB % f"{{{keys.rstrip(', ')}}}")
    said = partrain("run", "job.toml", "--out", "run", "-q")
    assert said.code in (65, 66, 78), said
    assert message in " ".join((said.err + said.out).split()), said


def test_fine_tuning_keeps_what_was_learned_of_each_word(tmp_path: Path) -> None:
    """Other texts number their words otherwise; other classes are answered otherwise, which a warning says."""
    (tmp_path / "job.toml").write_text(JOB % TABLE)
    assert partrain("run", "job.toml", "--out", "run", "-q").code == 0
    header, *rows = (tmp_path / "t.csv").read_text().splitlines()
    others = [f'{row[:-1]} zebra zebra zebra"' for row in rows if "money" in row] + [row for row in rows if "sport" in row][:60]
    (tmp_path / "t.csv").write_text("\n".join([header, *others, ""]))
    still = "optimizer={name='sgd', lr=1e-30, batch_size=16}", "stop.rounds=1", "model.from='run'"
    said = partrain("run", "job.toml", "--out", "tuned", "-q", *(word for change in still for word in ("--set", change)))
    assert said.code == 0, said
    assert "words, the others start from random numbers" in said.err
    assert "answers other classes" not in said.err
    assert summary(tmp_path / "tuned")["test"]["accuracy"] > 0.9
    (tmp_path / "t.csv").write_text("\n".join([header, *(row.replace("money", "trade") for row in others), ""]))
    said = partrain("run", "job.toml", "--out", "renamed", "-q", *(word for change in still for word in ("--set", change)))
    assert "answers other classes, or in another order: its class 0 is `money`, here it is `sport`" in said.err


def test_predict_says_what_it_does_not_see_of_a_text(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(JOB % TABLE)
    assert partrain("run", "job.toml", "--out", "run", "-q", "--set", "stop.rounds=1").code == 0
    long = f"{'the ' * 60}ball"
    (tmp_path / "new.csv").write_text(f'text\nthe goal\nxyzzy\n{long}\n""\n')
    said = partrain("predict", "run", "--input", "new.csv")
    assert said.code == 0
    assert "new.csv: 2 texts without a word that the network knows; the first: 1" in said.err
    assert "new.csv: 1 text of more than 24 words, the most that the network saw of a text in training" in said.err
    (tmp_path / "new.csv").write_text("text\nthe goal\n")
    assert "warning" not in partrain("predict", "run", "--input", "new.csv").err
