"""Whole runs on streams: the same bits after a resume, a lost worker and on every transport, in bounded memory; and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.runs import SIMULATED, events, newest, partrain, resume, round_file, summary, train, write_job

import partrain as package
from partrain import checkpoint
from partrain.checkpoint import Content
from partrain.errors import UserCodeFailed

CODE = '''"""Sums of three numbers, as a stream and in memory."""

import builtins

import numpy as np

(__file__ and open(__file__ + ".ran", "a")).close()


def item(number):
    x = np.random.default_rng(number).normal(size=3)
    return x, [x.sum()]


class Sums:
    """Every `size`-th of the numbers below `items`, shuffled anew in each pass."""

    def __init__(self, items=90, deed=""):
        self.items, self.deed = items, deed

    def stream(self, rank, size, seed, pass_number, skip=0):
        order = np.random.default_rng([seed, pass_number]).permutation(self.items)[rank::size]
        for place, number in enumerate(order[skip:], skip):
            if self.deed:
                builtins.exec(self.deed)  # a bare `exec` might define names: then only running the code tells what is in it
            yield item(number)

    def validation(self):
        return [item(1000 + number) for number in range(20)]

    def test(self):
        return [item(2000 + number) for number in range(10)]


class Plain(Sums):
    """The same without `skip`."""

    def stream(self, rank, size, seed, pass_number):
        return super().stream(rank, size, seed, pass_number)


class Counted(Sums):
    """The same with the lengths of the shards."""

    def length(self, rank, size):
        return len(range(rank, self.items, size))
'''
PASSES = 'sync={rule="average", passes=1}'


def on(folder: Path, name: str = "Sums", *sets: str, **keys: Any) -> list[str]:
    """Write the code beside a job; return overrides that name it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "own.py").write_text(CODE)
    table = ", ".join(f"{key}={json.dumps(value)}" for key, value in {"name": f"own.py:{name}", "validation": 20, **keys}.items())
    return [f"dataset={{{table}}}", *sets]


def content(run: Path) -> Content:
    return checkpoint.read(run / "checkpoint.h5")


def cursors(run: Path) -> list[list[int]]:
    """Pass and items of each worker's position."""
    arrays = content(run).arrays
    return [arrays[path][:2].tolist() for path in sorted(arrays) if path.endswith("/stream")]


@pytest.mark.parametrize(
    ("name", "sync"),
    [("Sums", ""), pytest.param("Plain", "", marks=pytest.mark.slow), pytest.param("Counted", PASSES, marks=pytest.mark.slow)],
)
def test_resumed_from_each_round_to_the_bit(tmp_path: Path, name: str, sync: str) -> None:
    run = train(tmp_path, *on(tmp_path, name), *filter(None, [sync]))
    for number in 1, 2, 3:
        resume(round_file(run, number), "--out", tmp_path / f"{number}", "--trust-code")
        assert newest(tmp_path / f"{number}") == newest(run), number
    # 45 items each: 4 rounds of 3 batches of 8 run on into the third pass; whole passes end with a short batch
    assert cursors(run) == ([[3, 45], [3, 45]] if sync else [[2, 6], [2, 6]])
    assert summary(run)["item_iterations"] == (360 if sync else 192)
    assert summary(run)["loss"] < 3


@pytest.mark.representative
@pytest.mark.parametrize("workers", [1, 3])
def test_the_same_bits_on_processes_and_in_simulation(tmp_path: Path, workers: int) -> None:
    found = []
    for kind in "shared", "simulated":
        run = train(
            tmp_path / kind, *on(tmp_path / kind), f"workers.0.count={workers}", f'transport.kind="{kind}"', "stop.rounds=2"
        )
        found.append(content(run).arrays)
    assert found[0].keys() == found[1].keys()
    assert all(np.array_equal(found[0][path], found[1][path], equal_nan=True) for path in found[0])


def test_the_bits_of_a_run_in_memory_if_its_order_is_the_same(tmp_path: Path) -> None:
    """A stream that draws the permutations of a partition gives what gathered items give."""
    code = """
class Held:
    items = [item(number) for number in range(110)]
    def __len__(self): return 110
    def __getitem__(self, number): return self.items[number]

class Stream:
    def stream(self, rank, size, seed, pass_number):
        from partrain.data.partition import Partition, assign
        from partrain.seeds import generator
        part = assign(Partition(), 110, 20, [None] * size, seed).partitions[rank]
        for number in part[generator(seed, "pass", rank, pass_number).permutation(len(part))]:
            yield self.items[number]
    def length(self, rank, size): return 45
    validation = items = Held.items
"""
    for sync in "", PASSES:
        runs = []
        for name in "Held", "Stream":
            folder = tmp_path / f"{name}{bool(sync)}"
            sets = on(folder, name)
            (folder / "own.py").write_text(CODE + code)
            runs.append(content(train(folder, SIMULATED, *sets, *filter(None, [sync]))))
        held, streamed = (run.arrays for run in runs)
        same = [
            path
            for path in held
            if path.startswith(("model/", "optimizer/")) or path.endswith("/counts") or path == "history/loss"
        ]
        assert len(same) > 6
        assert all(np.array_equal(held[path], streamed[path]) for path in same)


@pytest.mark.parametrize("kind", ["shared", pytest.param("simulated", marks=pytest.mark.slow)])
def test_a_lost_worker_starts_again_at_its_position(tmp_path: Path, kind: str) -> None:
    """It is killed in the third round; the stream is drawn on from the newest snapshot, and the bits are those of a calm run."""
    worker = 0 if kind == "simulated" else 1
    net = f"""
import multiprocessing, os, pathlib, signal
from torch import nn
class Net(nn.Sequential):
    def __init__(self, calm):
        super().__init__(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
        self.calls, self.calm = 0, calm
    def forward(self, x):
        self.calls += self.training
        done = pathlib.Path(__file__).with_name("done")
        if self.calls == 8 and not self.calm and not done.exists():
            if multiprocessing.current_process().name == "partrain worker {worker}":
                done.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(x)
"""
    runs = []
    for calm in "true", "false":
        folder = tmp_path / calm
        sets = on(folder)
        (folder / "net.py").write_text(net)
        runs.append(train(folder, *sets, f'model={{name="net.py:Net", calm={calm}}}', f'transport.kind="{kind}"'))
    assert [len(events(run, "replay")) for run in runs] == [0, 1]
    calm_arrays, arrays = (content(run).arrays for run in runs)
    assert all(np.array_equal(calm_arrays[path], arrays[path]) for path in arrays if not path.startswith("history/"))


def test_other_workers_begin_with_a_new_pass(tmp_path: Path) -> None:
    run = train(tmp_path, *on(tmp_path))
    said = partrain("resume", run, "--set", "workers.0.count=3", "--until", "rounds=5", "--trust-code")
    assert said.code == 0, said
    assert "2 cpu workers before, 3 cpu workers from round 5 on: " in said.err
    assert "the stream is sharded again, and begins with pass 3" in said.err
    assert cursors(run) == [[3, 24]] * 3


BIG = """
import resource

import numpy as np
from torch import nn

SIZE, ITEMS, SPARE = 1 << 20, 150, 200 << 20  # 600 MB of items, 200 MB of memory for them

def limit():
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + SPARE, resource.RLIM_INFINITY))

class Mere:
    def __iter__(self):
        limit()
        return ((np.full(SIZE, number, "f4"), [1.0 * number]) for number in range(ITEMS))

class Big(Mere):
    def stream(self, rank, size, seed, pass_number, skip=0):
        limit()
        return ((np.full(SIZE, number, "f4"), [1.0 * number]) for number in range(rank, ITEMS, size) if number >= skip * size)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.first = nn.Linear(1, 1), True
    def forward(self, x):
        if self.first:
            self.first = False
            limit()
        return self.layer(x.mean(1, keepdim=True) / ITEMS)
"""


@pytest.mark.slow
def test_memory_is_bounded(tmp_path: Path) -> None:
    """Neither the process of the user's code nor the worker could hold all items. As a mere iterator they do not fit."""
    (tmp_path / "big.py").write_text(BIG)
    sets = ['model={name="big.py:Net"}', "optimizer.batch_size=2", "optimizer.lr=0.001", "sync.iterations=20", "stop.rounds=2"]
    run = train(tmp_path, 'dataset={name="big.py:Big"}', *sets, "workers.0.count=1")
    assert summary(run)["item_iterations"] == 80
    job = write_job(tmp_path / "held", 'dataset={name="big.py:Mere"}', *sets)
    (tmp_path / "held" / "big.py").write_text(BIG)
    said = partrain("run", job, "--out", tmp_path / "held" / "run", "--quiet")
    assert said.code == 71, said
    assert "MemoryError" in said.err or "ArrayMemoryError" in said.err or "Unable to allocate" in said.err


@pytest.mark.parametrize(
    ("name", "sets", "place", "words"),
    [
        ("Sums", ["partition.overlap=0.1"], "overlap", "`overlap` divides items with numbers"),
        ("Sums", ['partition.redraw="round"'], "redraw", "`redraw` divides items with numbers"),
        ("Sums", ['partition.order="given"'], "order", "`order` divides items with numbers"),
        ("Sums", ['partition.sampling="balanced"'], "sampling", "`sampling` divides items with numbers"),
        ("Sums", ["workers.0.partition_size=9"], "partition_size", "`partition_size` cuts items with numbers"),
        ("Sums", [PASSES], "passes", "`passes` need the length of each worker's shard"),
        ("Sums", ["workers.0.passes=1"], "passes", "`passes` need the length of each worker's shard"),
        ("Sums", ['dataset.fold="1/2"', "dataset.validation=0"], "fold", "`fold` chooses among the items"),
        ("Sums", ["dataset.stratify=true"], "stratify", "`stratify` chooses among the items"),
        ("Sums", ['sync={rule="rprop", iterations=1}'], "rule", 'rule "rprop" takes the gradient of a whole partition'),
        ("Sums", ['sync={rule="fednova", iterations=1}'], "rule", 'rule "fednova" needs the length of each worker\'s shard'),
        ("Sums", ['sync.buffers="recalibrate"'], "buffers", "`buffers` recomputes BatchNorm statistics"),
        ("Sums", ["sync.swa=0.5"], "swa", "`swa` recomputes BatchNorm statistics"),
        ("Sums", ["optimizer.full_batch=true"], "full_batch", '"sgd" takes all items of a partition as one batch'),
        ("Sums", ['task={kind="classification", class_weights="balanced"}'], "class_weights", 'class_weights = "balanced" counts'),
        ("Sums", ['optimizer.schedule="linear"', "stop={seconds=1.0}"], "schedule", "`schedule` needs the length of the run"),
    ],
)  # fmt: skip
def test_refused_without_running_code(tmp_path: Path, name: str, sets: list[str], place: str, words: str) -> None:
    sets = [*on(tmp_path, name), *sets]
    if "optimizer.full_batch=true" in sets:
        sets.append('optimizer={name="sgd", lr=0.1, full_batch=true}')
        sets.remove("optimizer.full_batch=true")
    job = write_job(tmp_path, *sets)
    said = partrain("validate", job, "--json")
    assert said.code == 78, said
    found = json.loads(said.out)
    assert words in json.dumps(found, ensure_ascii=False).replace('\\"', '"')
    assert not (tmp_path / "own.py.ran").exists()


def test_refused_where_only_running_code_tells(tmp_path: Path) -> None:
    """A class that inherits its `stream` is found out when it is loaded."""
    job = write_job(tmp_path, *on(tmp_path, "Counted"), "partition.overlap=0.1")
    assert partrain("validate", job).code == 0
    said = partrain("validate", "--build", job)
    assert (said.code, "`overlap` divides items with numbers" in said.err + said.out) == (78, True), said
    job = write_job(tmp_path, *on(tmp_path, "Counted"), "optimizer.batch_size=46", PASSES)
    said = partrain("run", job, "--out", tmp_path / "run")
    assert (said.code, said.errors) == (78, ["bad-job"])
    assert "batch_size: 46 is more than the 45 items of worker 0's shard of the stream" in said.err
    assert partrain("validate", "--build", write_job(tmp_path, *on(tmp_path))).code == 0


@pytest.mark.parametrize(
    ("deed", "code", "words"),
    [
        ("if place == 30: raise KeyError('gone')", 71, "worker {rank}, pass 0: item 30: KeyError: 'gone'"),
        ("if place == 30: import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 71, "`own.py:Sums`: its process was killed by SIGKILL"),
        ("if place == 30: import os; os._exit(3)", 71, "`own.py:Sums`: its process ended with exit status 3 before its work was done"),
    ],
)  # fmt: skip
def test_a_stream_that_fails_ends_the_run(tmp_path: Path, deed: str, code: int, words: str) -> None:
    job = write_job(tmp_path, *on(tmp_path, deed=deed))
    said = partrain("run", job, "--out", tmp_path / "run", "--quiet")
    assert said.code == code, said
    assert any(words.format(rank=rank) in said.err for rank in (0, 1)), said
    assert len(events(tmp_path / "run", "replay")) == 0


@pytest.mark.slow
def test_a_stream_that_hangs_is_a_stall(tmp_path: Path) -> None:
    deed = "if place == 30: import time; time.sleep(1000)"
    busy = "transport.stall_seconds=20"  # the stream's process has to start within them
    job = write_job(tmp_path, *on(tmp_path, deed=deed), busy)
    said = partrain("run", job, "--out", tmp_path / "run", "--quiet")
    assert (said.code, said.errors) == (75, ["stalled"]), said
    assert "[dataset] name: `own.py:Sums` gave no item for 20 s" in said.err
    assert "can be resumed" in said.err or "is intact" in said.err


@pytest.mark.slow
def test_a_stream_without_shards_is_warned_of(tmp_path: Path) -> None:
    """Once, where there are several workers."""
    job = write_job(tmp_path, *on(tmp_path), "stop.rounds=1")
    (tmp_path / "own.py").write_text(CODE.replace("[rank::size]", ""))
    words = "each worker gets the same items"
    assert partrain("run", job, "--out", tmp_path / "run", "-q").err.count(words) == 1
    assert words in partrain("data", "inspect", job).out
    assert words not in partrain("run", job, "--out", tmp_path / "alone", "-q", "--set", "workers=[{}]").err


@pytest.mark.slow
def test_commands_know_streams(tmp_path: Path) -> None:
    job = write_job(tmp_path, *on(tmp_path, "Counted"))
    planned = json.loads(partrain("plan", job, "--json").out)
    assert (planned["data"]["stream"], planned["data"]["training_items"]) == (True, 90)
    assert "a stream of 90 items to train with, 20 to judge with, 10 to test with" in partrain("plan", job).out
    assert "a stream of items to train with" in partrain("plan", job, "--set", "dataset.name=own.py:Sums").out
    said = partrain("data", "inspect", job)
    assert "items: a stream to train on, 20 validation, 10 test" in said.out, said
    said = partrain("data", "convert", job, "-o", tmp_path / "x.items")
    assert (said.code, "its training items are a stream" in said.err) == (78, True)
    run = train(tmp_path / "run", *on(tmp_path / "run", "Counted"))
    scores = json.loads(partrain("evaluate", run, "--json", "--trust-code").out)
    assert (scores["validation"]["items"], scores["test"]["items"]) == (20, 10)
    assert scores["validation"]["loss"] == pytest.approx(summary(run)["best"]["loss"], rel=1e-5)
    endless = train(tmp_path / "endless", *on(tmp_path / "endless"), "stop.rounds=1")
    said = partrain("report", endless, "-o", tmp_path / "report.html")
    assert (said.code, ">stream<" in (tmp_path / "report.html").read_text()) == (0, True), said
    said = partrain("export", endless, "-f", "safetensors", "-o", tmp_path / "x.safetensors", "--card", "--trust-code")
    assert (said.code, "a stream of unknown length" in (tmp_path / "x.md").read_text()) == (0, True), said
    said = partrain("evaluate", run, "--split", "training", "--trust-code")
    assert (said.code, "no training items" in said.err) == (66, True), said


class Halves:
    """Numbers and whether they are above zero."""

    classes = 2

    def stream(self, rank: int, size: int, seed: int, pass_number: int) -> Iterator[Any]:
        draw = np.random.default_rng([seed, pass_number, rank])
        while True:
            x = draw.normal(size=2)
            yield x, int(x[0] > 0)

    def validation(self) -> Iterator[Any]:
        return self.stream(0, 1, 12, 34)


@pytest.mark.slow
def test_in_python(tmp_path: Path) -> None:
    """An endless stream: rounds are counted in iterations by default, and a generator gives the held-out items."""
    trained = package.train(
        model="linear", dataset={"data": Halves(), "validation": 200}, workers=2, stop={"rounds": 5}, out=tmp_path / "run",
        optimizer={"name": "adam", "lr": 0.1},
    )  # fmt: skip
    assert trained.summary["metrics"]["accuracy"] > 0.9
    assert trained.summary["item_iterations"] == 5 * 2 * 10 * 32

    class Iterated:
        def __iter__(self) -> Iterator[Any]:
            return iter([])

    with pytest.raises(UserCodeFailed, match="is empty"):  # it is no stream, but read as a whole
        package.train(model="linear", dataset=Iterated())
