"""Every command and every piece of Python of README.md and docs/ is executed, with small numbers, in a folder where the names of the pages exist.

Not executed are the scripts in benchmarks/, which take minutes, and names of commands without arguments (`partrain plot`). Code that is an
excerpt of a file is compared with that file (`test_docs.py`).
"""

from __future__ import annotations

import ast
import io
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, chdir, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from support import page_world
from support.machines import free_port
from support.onnx_registry import keep_onnx_registry
from support.preload import metrics_preloaded, torchvision_preloaded  # noqa: F401  fixtures
from support.runs import JOB, Command, Said, events, eventually, partrain, summary, write_job
from support.shared_runs import once
from test_docs import WRITTEN, blocks, excerpts, text_of, words_of
from torch import nn

import partrain as package
from partrain.config.overrides import as_toml
from partrain.workflow.kinds import is_sweep, is_workflow

pytestmark = pytest.mark.slow

PAGES = ["README.md", *WRITTEN]

NAMES = {
    "": {
        "JOB.toml": "job.toml", "RUN": "runs/first", "KEY": "optimizer.lr", "FILE": "data.csv", "COLUMN": "cultivator", "N": "4",
        "A": "runs/one", "B": "runs/two", "ID": "first", "SHARED/DIR": "runs/shared", "jobs/": "few",
    },
    "docs/best-and-averages.md": {"new.csv": "pixels.csv"},
    "docs/series.md": {"FILE": "passengers.csv", "COLUMN": "passengers"},
    "docs/text.md": {"new.csv": "topics.csv", "letters": "texts"},
    "docs/tasks-and-metrics.md": {"RUN": "runs/class-weights"},
}  # fmt: skip
"""Placeholders and files of the reader, by page ("" are all), and names that are there."""

SMALL = {
    "rounds=200": "rounds=4", "rounds=500": "rounds=4", "rounds=800": "rounds=4", "rounds=1200": "rounds=6", "round-000040": "round-000001",
    "--seeds 3": "--seeds 1", "--seeds 11": "--seeds 1", "--seeds 5": "--seeds 1", "--items 30000": "--items 1000", "--tokens 200": "--tokens 9",
    "--probe": "--probe --seconds 0.5", "--metrics-port 9400": "--metrics-port 0", "cuda:0": "cpu",
    "trials = 20 ": "trials = 1 ", "trials = 40": "trials = 2", "seeds = 3": "seeds = 1", "k_folds = 5": "k_folds = 2", "[40, 10]": "[2, 1]",
    "rounds = 10\n": "rounds = 2\n", "partition_size = 20_000": "partition_size = 60",
    '"stop.rounds" = 20': '"stop.rounds" = 2', "size = [64, 64]": "size = [16, 16]", "every image\nvalidation = 500": "every image\nvalidation = 8", "batch_size = 64\nschedule": "batch_size = 8\nschedule",
    "PartrainRegressor()": "PartrainRegressor(rounds=2)", '"lr": [0.001, 0.003]})': '"lr": [0.001]}, cv=2)', "PartrainClassifier(workers=2)": "PartrainClassifier(workers=2, rounds=2)",
    'stop={"rounds": 40}': 'stop={"rounds": 2}', 'stop={"rounds": 80}': 'stop={"rounds": 4}', '["rounds"] = 10': '["rounds"] = 2',
    'train(model="auto", dataset=(X, y))': 'train(model="auto", dataset=(X, y), stop={"rounds": 2})',
    '"validation": 20}, workers=2)': '"validation": 20}, workers=2, stop={"rounds": 2, "judge_every": 1})',
    '"fold": f"{k}/5"}, workers=2) for k in range(1, 6)': '"fold": f"{k}/2"}, workers=2, stop={"rounds": 2}) for k in range(1, 3)',
    "--nproc-per-node 1": "--nproc-per-node 1 --local-addr 127.0.0.1", "--nnodes 1:4": "--nnodes 1:4 --rdzv-conf last_call_timeout=1",
    "--nproc-per-node=1": "--nproc-per-node=1 --local-addr=127.0.0.1",
}  # fmt: skip
"""Large numbers, devices and addresses of the pages, and those that the tests take."""

CODES = {"partrain diff A B": 1, "partrain flow check study.toml": 1}
"""Exit codes that pages tell."""

EXCEPTIONS = {
    "make test": "the tests themselves",
    "make run": "installs .venv; other lines run jobs/mnist.toml, and test_init.py an installed wheel",
    "pip install .": "the same",
    "pip install '.[onnx,report]'": "the same",
    "python -m pytest tests/rules/test_slowmo.py tests/contract -k slowmo": "tests of the gate",
    "partrain run study.toml --cluster slurm": "tests/slurm runs it",
    "partrain checkpoint 2": "the first line of a file: see test_the_header_of_a_checkpoint",
    "partrain init --list": "writes no file: tests/cli/test_init.py",
    "partrain validate --build": "an option: docs/validate.md has a whole line",
    "partrain evaluate --input": "an option: docs/predict.md has whole lines",
    "partrain export --format onnx": "an option: docs/export.md has whole lines",
}
"""Lines that are not executed, and why."""

LONG = "partrain bench --suite seeds --seeds 3 --items 30000"
"""A line that takes half a minute, on two pages: it has a test of its own."""


@pytest.fixture
def here(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the folder where the names of the pages exist, and the working folder."""
    world = once(tmp_path_factory, "pages", page_world.make)
    shutil.copytree(world, tmp_path / "world", symlinks=True)
    here = tmp_path / "world/here"
    (here.parent / "runs").unlink()
    (here.parent / "runs").symlink_to("here/runs")
    (here / "study.toml").write_text(blocks("docs/workflows.md", "toml")[0])
    (here / "widths.toml").write_text(small(next(block for block in blocks("docs/workflows.md", "toml") if '"widths"' in block)))
    (here / "play.toml").write_text(blocks("docs/text.md", "toml")[0])
    (here / "find-lr.toml").write_text(next(block for block in blocks("docs/fine-tuning.md", "toml") if "find-lr" in block))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))  # `--install-completion` writes there
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("bash", "/bin/bash"))
    with chdir(here):
        yield here


def small(text: str) -> str:
    """A text of a page with small numbers."""
    for large, smaller in SMALL.items():
        text = text.replace(large, smaller)
    return text


def real(text: str, page: str) -> str:
    """A text of a page with real names and small numbers."""
    text, names = small(text), NAMES[""] | NAMES.get(page, {})
    found = "|".join(map(re.escape, names))
    return re.sub(rf"(?<![\w.-])({found})(?![\w/-])", lambda name: names[name[1]], text)


# Commands

TYPED = re.compile(r"(?:\$ )?(?:\S*/)?((?:partrain|make|pip|python|cat|echo) .*)")
LINE = re.compile(r"^ {4}(?P<shown>.*)$|`(?P<ticked>(?:srun [^`]*)?partrain [a-z][^`]*)`|^(?P<end>)$", re.MULTILINE)


def commands(page: str) -> dict[str, list[str]]:
    """The command lines of a page in its order, and the lines that it shows as the output of each."""
    block = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
    text = block.sub(lambda found: textwrap.indent(found[2], "    ") if found[1] == "console" else "", text_of(page))
    found: dict[str, list[str]] = {}
    output: list[str] = []
    for line in LINE.finditer(text):
        if line["shown"] and (typed := TYPED.fullmatch(line["shown"])):
            output = found.setdefault(re.sub(r" {2,}#.*", "", typed[1]), [])
        elif line["shown"]:
            output.append(line["shown"])
        elif line["ticked"] and not re.fullmatch(r"partrain [a-z]+( (inspect|convert|show))?", line["ticked"]):
            found.setdefault(line["ticked"], [])
        else:
            output = []
    return found


def execute(line: str, page: str) -> Said:
    """Execute a command line; the files that it names as its output are new."""
    before, _, command = real(line, page).rpartition(" | ")
    words = words_of(command[command.index("partrain ") :])
    for file in outputs(words):
        shutil.rmtree(file) if file.is_dir() else file.unlink(missing_ok=True)
    jobs = [Path(word) for word in words if word.endswith(".toml")]
    if (
        words[0] in ("run", "bench")
        and len(jobs) == 1
        and not is_workflow(jobs[0])
        and (words[0] == "run" or "stop." not in line)
    ):
        words += ["--set", "stop={rounds=2, judge_every=1}"]
    typed = subprocess.run(["bash", "-c", before], capture_output=True, check=True).stdout
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        if words[0] == "export":
            keep_onnx_registry(patch)
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed)))
        if words[0] in ("stop", "checkpoint"):
            stack.enter_context(training(Path(words[1])))
        said = partrain(*words)
    assert [file for file in outputs(words) if not file.exists()] == [], (line, said)
    return said


def outputs(words: list[str]) -> list[Path]:
    named = [value for option, value in pairwise(words) if option in ("-o", "--output", "--out")]
    if words[0] == "init":
        named += [word for word in words if word.endswith(".toml")] or ["job.toml"]
    return list(map(Path, named))


@contextmanager
def training(run: Path) -> Iterator[None]:
    """Another terminal trains this run."""
    shutil.rmtree(run)
    job = write_job(Path("endless"), "stop={rounds=1000000}", 'checkpoint={commit="coalesce"}')
    with Command(("run", job.absolute(), "--out", run.absolute(), "-q"), Path("terminal").absolute()):
        eventually(lambda: events(run, "commit"), "a checkpoint")
        yield


PREPARED: dict[str, Callable[[], object]] = {
    "partrain predict runs/wine --input new.csv --skip-bad": lambda: shutil.copy("bad-rows.csv", "new.csv"),
}
"""Done before some lines."""


def without_digits(text: str) -> str:
    """A text without the numbers that every training gives anew."""
    return re.sub(r"\d+\.\d{3,}", "x", text)


def is_logging(line: str) -> bool:
    return "--log " in line and line not in EXCEPTIONS


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)])
def test_the_commands_of_a_page(page: str, here: Path) -> None:
    """One after the other, as a reader types them."""
    for line, output in commands(page).items():
        if line in (*EXCEPTIONS, LONG) or is_logging(line):
            continue
        PREPARED.get(line, lambda: None)()
        said = execute(line, page)
        assert said.code == CODES.get(line, 0), (line, said)
        told = without_digits(said.err + said.out).splitlines()
        assert [shown for shown in output if without_digits(shown) not in told] == [], (line, said)


def test_a_command_of_two_pages(here: Path) -> None:
    assert [page for page in PAGES if LONG in commands(page)] == ["docs/benchmarks.md", "docs/faq.md"]
    assert execute(LONG, "").code == 0


@pytest.mark.parametrize(("page", "line"), [(page, line) for page in PAGES for line in commands(page) if is_logging(line)])
def test_the_commands_that_log(page: str, line: str, here: Path) -> None:
    tool = words_of(line)[-1]
    pytest.importorskip(tool)
    assert execute(line, page).code == 0
    assert list(here.glob(f"runs/*/*/{tool if tool != 'mlflow' else 'mlruns'}"))


def test_each_exception_is_on_a_page() -> None:
    assert set(EXCEPTIONS) | set(CODES) | set(PREPARED) <= {
        line for page in PAGES for line in (*commands(page), *console_lines(page))
    }


def test_the_tables_are_of_use() -> None:
    """All that they replace is on a page."""
    texts = "".join(map(text_of, PAGES))
    named = [name for names in NAMES.values() for name in names]
    assert [words for words in (*SMALL, *NEEDS, *named) if words not in texts] == []


def console_lines(page: str) -> list[str]:
    return [line.removeprefix("$ ") for block in blocks(page, "console") for line in block.splitlines()]


def test_every_line_and_script_is_executed() -> None:
    """Lines of a console as commands here, or in a script below."""
    scripts = "".join(SCRIPTS).replace("$ ", "").splitlines()
    seen = {line for page in PAGES for line in commands(page)}.union(scripts)
    assert [line for page in PAGES for line in console_lines(page) if line not in seen] == []
    assert [block for page in PAGES for kind in ("bash", "yaml") for block in blocks(page, kind) if block not in SCRIPTS] == []


def test_blocks_are_of_kinds_that_are_executed() -> None:
    """`text` is the formula of a paper. `js` needs a package of npm, and is tried by hand."""
    kinds = {kind for page in PAGES for kind in re.findall(r"^```([^\n]*)\n.*?^```", text_of(page), re.MULTILINE | re.DOTALL)}
    assert kinds == {"console", "bash", "yaml", "python", "toml", "text", "js"}


# Scripts of several machines

MACHINES, SLURM, ARRAY, DASK = blocks("docs/several-machines.md", "bash")
PODS, JOBQUEUE = blocks("docs/several-machines.md", "yaml")
(IMAGE,) = blocks("docs/containers.md", "bash")
(ELASTIC,) = (block for block in blocks("docs/faults.md", "console") if "torchrun" in block)
SCRIPTS = [MACHINES, SLURM, ARRAY, DASK, PODS, ELASTIC, IMAGE, JOBQUEUE]  # tests/slurm reads the last one


def pod_script() -> str:
    """The script of a pod, for this machine."""
    script = next(document for document in yaml.safe_load_all(PODS) if document["kind"] == "Job")
    (container,) = script["spec"]["template"]["spec"]["containers"]
    return shlex.join(container["command"]).replace("train-0.trainer", "127.0.0.1").replace("/data/", "")


@pytest.mark.parametrize("number", [0, 1], ids=["service", "job"])
def test_manifests_fit_the_schemas_of_kubernetes(number: int) -> None:
    checks = pytest.importorskip("kubernetes_validate")
    manifest = list(yaml.safe_load_all(PODS))[number]
    checks.validate(manifest, checks.latest_version(), strict=True)
    broken = manifest | {"spec": manifest["spec"] | {"nothing": 1}}
    with pytest.raises(checks.ValidationError):
        checks.validate(broken, checks.latest_version(), strict=True)


def run_script(script: str, machines: int, **environment: str) -> list[Said]:
    """Run a script of the shell on some machines: processes on this one, with one folder for all."""
    script = real(script, "").replace(" HOST:", " 127.0.0.1:").replace("29500", str(free_port()))
    with ExitStack() as stack:
        launcher = ("bash", "-c", script)  # which ignores the words behind it
        settings = {"GLOO_SOCKET_IFNAME": "lo", **environment}
        started = [stack.enter_context(Command((), Path.cwd(), settings, launcher=launcher)) for _ in range(machines)]
        return [one.wait(100) for one in started]


@pytest.mark.parametrize(
    ("script", "run", "workers"), [(MACHINES, "runs/mnist-2", 4), (pod_script(), "runs/mnist", 2)], ids=["machines", "pods"]
)
def test_two_machines_train_one_job(script: str, run: str, workers: int, here: Path) -> None:
    shutil.rmtree(run, ignore_errors=True)
    said = run_script(script, 2)
    assert [each.code for each in said] == [0, 0], said
    assert summary(here / run)["rounds"] == 2
    assert len(events(here / run, "start")[0]["workers"]) == workers


def test_machines_that_come_and_go(here: Path) -> None:
    said = run_script(ELASTIC.replace("$ ", ""), 1)
    assert said[0].code == 0, said
    assert summary(here / "runs/shared")["rounds"] == 2


@pytest.mark.parametrize(("script", "run"), [(SLURM, "runs/7"), (ARRAY, "runs/7-1")], ids=["one job", "an array"])
def test_scripts_for_slurm(script: str, run: str, here: Path) -> None:
    """With a stand-in for srun, which runs a command on this machine; tests/slurm runs them on a real SLURM."""
    page_world.program(here / "bin", "srun", 'exec "$@"')
    slurm = {"SLURM_JOB_ID": "7", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "1"}
    said = run_script(script, 1, PATH=f"{here / 'bin'}:{os.environ['PATH']}", **slurm)
    assert said[0].code == 0, said
    assert summary(here / run)["rounds"] == 2


def test_an_image_trains(here: Path) -> None:
    docker = shutil.which("docker")
    if not docker or subprocess.run([docker, "info"], capture_output=True).returncode:
        pytest.skip("no daemon of docker answers here")
    build, run = IMAGE.splitlines()
    subprocess.run(build, shell=True, check=True, cwd=Path(__file__).parents[1])
    subprocess.run(real(run, ""), shell=True, check=True)
    assert summary(next(here.glob("runs/job/*")))["status"] == "finished"


def test_the_arguments_of_the_image_are_documented() -> None:
    declared = re.findall(r"^ARG (\w+)", text_of("Dockerfile"), re.MULTILINE)
    assert sorted(declared) == sorted(re.findall(r"^\| `(\w+)` \|", text_of("docs/containers.md"), re.MULTILINE))


@contextmanager
def background(line: str) -> Iterator[None]:
    process = subprocess.Popen(["bash", "-c", f"exec {line}"], start_new_session=True, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_workflow_on_a_dask_cluster(here: Path) -> None:
    pytest.importorskip("distributed")
    port = free_port()
    scheduler, worker, run = DASK.replace("HOST:8786", f"127.0.0.1:{port}").splitlines()
    with (
        background(f"{scheduler} --host 127.0.0.1 --port {port} --no-dashboard"),
        background(worker.replace("dask worker", "dask worker --no-nanny --no-dashboard")),
    ):
        said = execute(run, "docs/several-machines.md")
    assert said.code == 0, said


# Python


@dataclass(frozen=True)
class Own:
    """Code of a page as a file beside a job."""

    file: str
    sets: tuple[str, ...] = ()
    """Overrides of the job that uses it; without any, a part of a job on the page uses it."""
    before: str = ""
    changes: dict[str, str] = field(default_factory=dict)
    """Bodies that the page leaves out as `...`, and names that it leaves to the reader."""
    after: str = ""

    def write(self, code: str, folder: Path) -> None:
        for left_out, given in self.changes.items():
            assert left_out in code
            code = code.replace(left_out, given)
        (folder / self.file).write_text(f"{self.before}\n\n{code}\n\n{self.after}")


IMPORTS = "import numpy as np\nimport torch\nfrom torch import nn\n"
READ = "import numpy as np\n\n\ndef read(number):\n    return np.float32([number % 2, number % 3]), number % 2\n"
ITEMS = """
class Data(Data):
    def __len__(self):
        return 120

    def __getitem__(self, number):
        return read(number)
"""
NET = """
class Net(Net):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(19, 4)
"""
PERMUTED = "def permuted(seed, pass_number):\n    return np.random.default_rng([seed, pass_number]).permutation(90)\n"
ROWS = """
class Rows:
    def __init__(self, numbers):
        self.numbers = numbers

    def shard(self, num_shards, index):
        return Rows(self.numbers[index::num_shards])

    def shuffle(self, seed, buffer_size):
        self.seed = seed
        return self

    def set_epoch(self, epoch):
        self.numbers = np.random.default_rng([self.seed, epoch]).permutation(self.numbers)

    def __iter__(self):
        for number in self.numbers:
            image, label = read(number)
            yield {"image": image, "label": label}
"""
FILES = "def items_of(file):\n    return map(read, range(file, file + 10))\n"
STREAM = """
class Data:
    classes = 2

    def __init__(self):
        self.data, self.files = globals().get("Rows", list)(range(90)), range(0, 90, 10)

    def validation(self):
        return map(read, range(100, 120))

    stream = stream
"""
OWN: dict[str, list[Own]] = {
    "docs/hooks.md": [Own("hooks.py"), Own("task.py")],
    "docs/tasks-and-metrics.md": [
        Own("net.py"),
        Own("metrics.py"),
        Own("task.py"),
    ],
    "docs/inputs.md": [
        Own(
            "own.py",
            ("dataset={name='own.py:Data', validation=20}", "model={name='own.py:Net'}"),
            f"{IMPORTS}\nimage, meta = np.zeros((1, 4, 4), np.float32), np.zeros(3, np.float32)",
            {
                "def __len__(self): ...": "def __len__(self): return 120",
                "}, label": "}, number % 2",
                "meta): ...": "meta): return self.layer(torch.cat([image.flatten(1), meta], 1))",
            },
            NET,
        ),
        Own("augmented.py", ("dataset={name='augmented.py:Data', validation=20}",), f"import torch\n{READ}", {}, ITEMS),
        Own(
            "streamed.py",
            ("dataset={name='streamed.py:Data', validation=20}",),
            READ + PERMUTED,
            {
                "def length(self, rank, size): ...": "def length(self, rank, size): return len(range(rank, 90, size))",
                "def validation(self): ...": "def validation(self): return map(read, range(100, 120))",
                "def test(self): ...": "def test(self): return map(read, range(200, 210))",
            },
        ),
        Own("rows.py", ("dataset={name='rows.py:Data', validation=20}",), READ + ROWS, {}, STREAM),
        Own("files.py", ("dataset={name='files.py:Data', validation=20}",), READ + FILES, {}, STREAM),
    ],
}
"""Code that jobs name, by page in its order."""


def code_of(page: str) -> list[str]:
    """The Python of a page but for excerpts of files. Two functions in one block are alternatives."""
    told = [code for _, _, code in excerpts()]
    return [piece for block in blocks(page, "python") if block not in told for piece in re.split(r"\n\n(?=def )", block)]


def write_own(page: str, folder: Path) -> None:
    for own, code in zip(OWN.get(page, ()), code_of(page) if page in OWN else (), strict=True):
        own.write(code, folder)


@pytest.mark.parametrize(
    ("page", "own"), [pytest.param(page, own, id=own.file) for page, files in OWN.items() for own in files if own.sets]
)
def test_code_that_a_job_names(page: str, own: Own, tmp_path: Path) -> None:
    write_own(page, tmp_path)
    job = write_job(tmp_path, *own.sets, "stop={rounds=2}")
    said = partrain("run", job, "--out", tmp_path / "run", "-q")
    assert said.code == 0, said
    assert summary(tmp_path / "run")["rounds"] == 2


def given() -> dict[str, Any]:
    """The names that code of the pages takes as given."""

    class Net(nn.Sequential):
        def __init__(self) -> None:
            super().__init__(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 3))

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, a: Any, b: Any) -> Any:
            return self.layer(a + b)

    X = np.random.default_rng(0).normal(size=(120, 4)).astype(np.float32)
    y = X[:, :3].argmax(1)
    names = {"partrain": package, "X": X, "y": y, "X_new": X[:7], "X_test": X[60:], "y_test": y[60:], "A": X[:7], "B": X[:7]}
    return names | {"Net": Net, "net": Net(), "Both": Both, "after": lambda judgement: None}


def prepare_python(names: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Write what the page on Python reads; return the names that some of its statements have another meaning for."""
    X, y, short = names["X"], names["y"], {"rounds": 2}
    np.savetxt("new.csv", X[:7], delimiter=",", header="a,b,c,d", comments="")
    names["RUN"] = Path("runs/python/2026-11-23T10-00-00")
    package.train(model=names["Net"], dataset=(X, y), out=names["RUN"], stop=short)
    several = package.train(model=names["Both"], dataset=({"a": X, "b": X}, y), stop=short)
    sequences = package.train(model="gru", dataset=([[3, 1, 2], [5, 4], [0, 1]] * 40, list(range(3)) * 40), stop=short)
    return {
        'trained.predict({"a": A, "b": B})': {"trained": several},
        "trained.predict([[3, 1, 2], [5, 4]])": {"trained": sequences},
    }


def prepare_export(names: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Write the file that the page on exports loads, and the rows that it takes."""
    pytest.importorskip("onnxruntime")
    (line,) = (line for line in commands("docs/export.md") if line.endswith("-o wine.onnx --with-preprocessing"))
    assert execute(line, "docs/export.md").code == 0
    names["rows"] = np.loadtxt("datasets/wine/wine.csv", delimiter=",", skiprows=1, usecols=range(13))[:7]
    return {}


PYTHON: dict[str, Callable[[dict[str, Any]], dict[str, dict[str, Any]]]] = {
    "README.md": lambda names: {},
    "docs/checkpoints.md": lambda names: {},
    "docs/export.md": prepare_export,
    "docs/python.md": prepare_python,
}
"""Pages whose Python is a script, and preparations."""


@pytest.mark.parametrize("page", PYTHON)
def test_the_python_of_a_page(page: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One statement after the other; an expression has a value, and a session shows what the page shows."""
    if ".export(" in "".join(code_of(page)):
        keep_onnx_registry(monkeypatch)
    names = given()
    others = PYTHON[page](names)
    for code in map(small, code_of(page)):
        if code.startswith(">>> "):
            typed, shown = code.removeprefix(">>> ").splitlines()
            with pytest.raises(package.Failure) as failure:
                exec(typed, names)
            assert str(failure.value) == shown
            continue
        for statement in ast.parse(code).body:
            text = str(ast.get_source_segment(code, statement))
            if isinstance(statement, ast.Expr):
                value = eval(text, names | others.pop(text, {}))
                assert value is not None, text
                assert len(value) == len(names["X_new"]) if "(X_new)" in text else True
            else:
                exec(text, names)
    assert not others, "statements of another meaning are on the page"


def test_sections_as_the_page_shows_them() -> None:
    shown = re.findall(r"`(partrain\.sections\.\w+\([^`]+\))`", text_of("docs/python.md"))
    assert [type(eval(text, {"partrain": package})).__name__ for text in shown] == ["Adam", "Average", "Mlp", "Stop"]


def test_all_python_is_executed() -> None:
    assert {page: len(code_of(page)) for page in PAGES if code_of(page) and page not in PYTHON} == {
        page: len(files) for page, files in OWN.items()
    }


def test_the_header_of_a_checkpoint(here: Path) -> None:
    """With the command of the page."""
    text = text_of("docs/checkpoints.md")
    (line,) = re.findall(r"`(tail [^`]*) FILE` piped to `sha256sum`", text)
    digest = subprocess.run(["bash", "-c", f"{line} runs/first/checkpoint.h5 | sha256sum"], capture_output=True, text=True).stdout
    header = (here / "runs/first/checkpoint.h5").read_bytes()[:512].decode().splitlines()
    assert header[0] == "partrain checkpoint 2"
    assert header[2] == f"sha256 {digest.split()[0]}"
    words = [re.findall(r"^\| `(\w+)", text.partition("The header has")[2], re.MULTILINE)[:7]]
    assert words == [[row.split()[0] for row in header[:7]]]


# Jobs

BASE = tomllib.loads(JOB) | {"stop": {"rounds": 2}}
"""The job that parts belong to: clouds of points."""
CLASSES = {"model": {"name": "mlp"}, "dataset": {"kind": "csv", "path": "fraud.csv", "target": "kind", "validation": 20}}
COLORS = {"dataset": {"kind": "npz", "path": "colors.npz", "validation": 4}}
RESNET = COLORS | {"model": {"name": "torchvision:resnet18"}}
MONTHS = {
    "dataset": {
        "kind": "series",
        "path": "passengers.csv",
        "target": "passengers",
        "time": "month",
        "window": 24,
        "validation": 9,
    }
}
TEXTS = {"dataset": {"kind": "npz", "path": "texts.npz", "tokens": True, "offsets": "offsets", "validation": 20}}
SINE = {"dataset": {"kind": "synthetic", "function": "sine", "items": 230, "validation": 30}}
DICT_NET = """
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.LazyLinear(3)

    def forward(self, items):
        return {"logits": self.layer(items.flatten(1))}
"""
"""A network that returns a dict."""
OWN_NET = """from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.norm, self.head = nn.Linear(2, 8), nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, points):
        return self.head(self.norm(self.body(points)))
"""
NEEDS: dict[str, dict[str, Any]] = {
    'from = "../runs/mnist-digits-0-4"': {
        "model": {"channels": [16, 32], "kernel": 5, "dense": [128], "dropout": 0.25},
        "dataset": {"name": "mnist", "classes": [5, 6, 7, 8, 9], "validation": 100},
    },
    "pretrained = true": COLORS,
    "sha256 = ": COLORS,
    "freeze = ": RESNET,
    "clip_norm = ": {"optimizer": {"name": "sgd", "lr": 0.05, "batch_size": 8}},
    "layer_decay = ": {"model": {"name": "head.py:Net"}},
    'name = "task.py:Within"': SINE,
    'inputs = ["image", "meta"]': {"model": {"name": "own.py:Net"}, "dataset": {"validation": 50}},
    'offsets = "offsets"': {"model": {"name": "gru"}, "dataset": {"validation": 20}},
    'path = "photos"': {"dataset": {"validation": 8}},
    "difference = ": MONTHS,
    "fraud = 20.0": CLASSES,
    'loss = "quantile"': SINE,
    'loss = "huber"': SINE,
    "convolutions = ": COLORS,
    'norm = "group"': COLORS,
    "nonlinearity = ": TEXTS,
    "tied = true": {"dataset": {"kind": "text", "path": "book.txt", "length": 8, "validation": 10}},
    "vocabulary = ": {"model": {"name": "gru"}},
    "temperature": {"model": {"name": "mlp"}},
    'separator = ";"': {"model": {"name": "tabular"}},
    'path = "news.csv"': {"dataset": {"validation": 20}},
    "lower_is_better": CLASSES,
}
"""Tables and keys that a part leaves out, by words of the part. Other parts belong to `BASE`."""


def parts(page: str) -> list[str]:
    """The jobs and parts of jobs on a page. Lines that set one key several times are alternatives."""
    found = []
    for part in blocks(page, "toml"):
        lines = re.findall(r"^difference .*\n", part, re.MULTILINE)
        found += [line + re.sub(r"difference .*\n", "", part) for line in lines] or [part]
    return [part for part in found if "[[steps]]" not in part]  # a command of its page runs the workflow


def job_with(part: str) -> dict[str, Any]:
    """A whole job with a part of one, which decides where both have a key."""
    data = tomllib.loads(part)
    if "name" in data:
        return data
    needs = next((needs for words, needs in NEEDS.items() if words in part), {})
    if "difference" in data:  # keys of [dataset]
        data = {"dataset": data}
    whole = {key: needs.get(key, {}) | table if isinstance(table, dict) else table for key, table in data.items()}
    return BASE | needs | whole


@pytest.mark.usefixtures("torchvision_preloaded", "metrics_preloaded")
@pytest.mark.parametrize(
    ("page", "part"),
    [pytest.param(page, part, id=f"{page}-{number}") for page in PAGES for number, part in enumerate(parts(page), start=1)],
)
def test_the_jobs_of_a_page_train(page: str, part: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole ones, and parts with the tables that they leave out."""
    write_own(page, here)
    shutil.copy("jobs/own_data.py", here)
    (here / "head.py").write_text(OWN_NET)
    (here / "language_model.py").write_text(DICT_NET)
    monkeypatch.setenv("TORCH_HOME", str(here / "torch"))
    if "torchvision:" in part:
        digest = page_world.publish_weights(here / "torch")
        part = re.sub(r'sha256 = "[^"]*"', f'sha256 = "{digest}"', part)
    job = job_with(small(part))
    (here / "part.toml").write_text(as_toml(job))
    short = () if is_sweep(Path("part.toml")) else ("--set", "stop.rounds=2")
    said = partrain("run", "part.toml", "--out", "out", "-q", *short)
    targets = {"accuracy", "loss", "at_least", "at_most"} & job["stop"].keys()
    assert said.code in ((0, 1) if targets else (0,)), said
    if short:
        assert 1 <= summary(here / "out")["rounds"] <= 2
        own = {"largest"} if "hooks" in job else set()
        wanted = own | {name.rpartition(":")[2] for name in job.get("task", {}).get("metrics", ())}
        assert wanted <= page_world.numbers_of(here / "out")
    else:
        assert list(here.glob("out/**/sweep.json"))
