"""Data sets of user code: allowed forms, resulting items, and messages for other forms."""

import textwrap
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.runs import Command, descendants, eventually, partrain, summary, train, write_job
from support.stalls import count_stopped_only

from partrain.data import Dataset, load, read_spec
from partrain.data.user import pipe
from partrain.data.user.pipe import waiting_at_most
from partrain.data.user.section import UserData
from partrain.errors import InputMissing, Stalled, UserCodeFailed
from partrain.job import load as jobs


def loaded(folder: Path, code: str, **arguments: object) -> Dataset:
    (folder / "own.py").write_text(textwrap.dedent(code))
    return load(UserData(name="own.py:data", **arguments), folder)


def refused(folder: Path, code: str) -> UserCodeFailed:
    with pytest.raises(UserCodeFailed) as caught:
        loaded(folder, code)
    assert "\n" not in caught.value.message
    return caught.value


def given(folder: Path, items: str) -> Dataset:
    """A data set that is a list of items."""
    return loaded(folder, f"import numpy as np\ndef data(): return {items}")


@pytest.mark.slow
def test_items_by_number_and_arguments(tmp_path: Path) -> None:
    code = """
        import torch

        class data(torch.utils.data.Dataset):
            def __init__(self, size, names=()):
                self.size, self.names = size, names

            def __len__(self):
                return self.size

            def __getitem__(self, number):
                return torch.full((2, 3), number / 2, dtype=torch.float64), len(self.names) + number % 3

            def test(self):
                return data(4, self.names)
        """
    data = loaded(tmp_path, code, size=10, names=["a", "b"])
    assert read_spec(UserData(name="own.py:data"), tmp_path) is None
    assert (data.inputs.shape, data.inputs.dtype, data.scale) == ((10, 2, 3), np.float32, 1.0)
    assert data.inputs[:, 1, 2].tolist() == [number / 2 for number in range(10)]
    assert data.targets.tolist() == [2, 3, 4, 2, 3, 4, 2, 3, 4, 2]
    assert (data.task, data.outputs, data.vocabulary) == ("classification", 5, None)
    assert data.test_targets is not None
    assert data.test_targets.tolist() == [2, 3, 4, 2]


def test_many_items_arrive_in_order(tmp_path: Path) -> None:
    data = loaded(
        tmp_path,
        """
        import numpy as np
        class data:
            inputs = np.arange(3_000_000).reshape(1000, 3000) / 8
            targets = np.arange(1000)[:, None] / 4
            class test:
                inputs, targets = np.ones((2, 3000)), np.ones((2, 1))
        """,
    )
    assert np.array_equal(data.inputs, np.arange(3_000_000, dtype="f4").reshape(1000, 3000) / 8)
    assert data.targets[:, 0].tolist() == [number / 4 for number in range(1000)]
    assert (data.task, data.outputs) == ("regression", 1)
    assert data.test_inputs is not None
    assert data.test_inputs.all()


@pytest.mark.parametrize(("items", "inputs", "targets", "task", "outputs", "vocabulary"), [
    ("[(1.5, 2.5), (2, 3.0)]", ("float32", (2, 1)), ("float32", (2, 1)), "regression", 1, None),
    ("[([1.0, 2.0], [1.0, 2.0, 3.0])]", ("float32", (1, 2)), ("float32", (1, 3)), "regression", 3, None),
    ("[(np.uint8([[1, 2]]), True), (np.uint8([[1, 2]]), False)]", ("uint8", (2, 1, 2)), ("int64", (2,)), "classification", 2,
     None),
    ("[([1, 5, 2], 1)]", ("int64", (1, 3)), ("int64", (1,)), "classification", 2, 6),
    ("[([1, 5, 2], [5, 2, 9])]", ("int64", (1, 3)), ("int64", (1, 3)), "language", 10, 10),
    ("[(np.float16([1]), 0.5)]", ("float32", (1, 1)), ("float32", (1, 1)), "regression", 1, None),
])  # fmt: skip
def test_what_targets_are_tells_the_task(
    tmp_path: Path, items: str, inputs: object, targets: object, task: str, outputs: int, vocabulary: int | None
) -> None:
    if "(2, 3.0)" in items:
        items = items.replace("(2, 3.0)", "(2.0, 3.0)")
    data = given(tmp_path, items)
    assert (data.inputs.dtype, data.inputs.shape) == inputs
    assert (data.targets.dtype, data.targets.shape) == targets
    assert (data.task, data.outputs, data.vocabulary) == (task, outputs, vocabulary)
    assert data.scale == (1 / 255 if data.inputs.dtype == np.uint8 else 1.0)


@pytest.mark.slow
def test_the_same_each_time(tmp_path: Path) -> None:
    code = """
        import random
        import numpy as np
        import torch

        def data():
            words = sorted({"a", "b", "c", "d"}, key=hash)
            return [(torch.rand(3) + np.random.rand() + random.random(), words.index("a")) for _ in range(5)]
        """
    assert loaded(tmp_path, code).fingerprint == loaded(tmp_path, code).fingerprint


@pytest.mark.representative
def test_what_it_prints_is_no_data(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert loaded(tmp_path, "def data():\n print('reading')\n return [(1.0, 2.0)]").targets == 2
    assert capfd.readouterr() == ("", "reading\n")


@pytest.mark.parametrize(("items", "message"), [
    ("[]", "`own.py:data` is empty"),
    ("7", "`own.py:data` is of type int, which has no __len__: expected something with a length that gives an input and a"),
    ("object()", "`own.py:data` is of type object, which has no __len__"),
    ("iter([])", "`own.py:data` is empty"),
    ("iter([(1.0, 1), (1.0, 2, 3)])", "`own.py:data`: item 1 is tuple of 3: expected an input and a target"),
    ("[3]", "`own.py:data`: item 0 is int: expected an input and a target"),
    ("[(1, 2, 3)]", "`own.py:data`: item 0 is tuple of 3: expected an input and a target"),
    ("[('a', 1)]", "`own.py:data`: item 0: its input is no array of numbers, but of <U1"),
    ("[(np.zeros(0), 1)]", "`own.py:data`: item 0: its input holds no numbers: its shape is"),
    ("[([[1], [1, 2]], 1)]", "`own.py:data`: item 0: its input is no array of numbers: setting an array element"),
    ("[(1.0, [1, 0])]", r"`own.py:data`: item 0: its target is int64 \(2,\): expected one whole number as the label"),
    ("[([1.0], 1), ([1.0], 2), ([1.0, 2.0], 1)]", r"item 2: its input is numbers \(2,\), and item 0 has numbers \(1,\)"),
    ("[(1.0, 1), (1.0, 1.5)]", r"item 1: its target is numbers \(\), and item 0 has label \(\)"),
    ("[(1.0, 1.0), (float('nan'), 1.0)]", "item 1: its input holds a number that is not finite"),
    ("[(1e300, 1.0)]", "item 0: its input holds a number that is not finite$"),
    ("[([1.0, 2.0], 1.0), ([1.0, 1e300], 1.0)]", r"item 1: its input holds a number that is not finite, at \[1\]$"),
    ("[(1.0, 0), (1.0, 2), (1.0, -1)]", "item 2: its target holds a negative number"),
    ("[(1.0, np.uint64(0)), (1.0, np.uint64(2**64 - 1))]", "item 1: its target holds a number that int64 cannot hold"),
])  # fmt: skip
def test_what_will_not_do_is_named(tmp_path: Path, items: str, message: str) -> None:
    with pytest.raises(UserCodeFailed, match=rf"^\[dataset\] name: .*{message}"):
        given(tmp_path, items)


@pytest.mark.representative
def test_test_items_are_to_be_like_the_others(tmp_path: Path) -> None:
    said = refused(tmp_path, "class data(list):\n def __init__(self): super().__init__([(1.0, 1)])\n test = [((1.0, 2.0), 1)]")
    assert said.message.endswith("`test`: its inputs are numbers (2,), those to train on numbers ()")


def test_an_error_of_the_users_code_has_the_users_lines(tmp_path: Path) -> None:
    said = refused(
        tmp_path, "class data(list):\n def __len__(self): return 3\n def __getitem__(self, n):\n  return 1 / (1 - n), n"
    )
    assert said.message == "[dataset] name: `own.py:data`: item 1: ZeroDivisionError: division by zero"
    assert "own.py" in said.detail
    assert "materialise" not in said.detail


@pytest.mark.representative
def test_a_keyword_that_nobody_knows(tmp_path: Path) -> None:
    with pytest.raises(UserCodeFailed, match=r"`own\.py:data`: TypeError: .* unexpected keyword argument 'size'"):
        loaded(tmp_path, "def data(): pass", size=3)


@pytest.mark.parametrize(("deed", "end"), [
    ("kill(getpid(), 9)", "was killed by SIGKILL (possibly out of memory)"),
    ("_exit(3)", "ended with exit status 3 before its work was done"),
])  # fmt: skip
def test_a_process_that_goes_away(tmp_path: Path, deed: str, end: str) -> None:
    said = refused(tmp_path, f"def data():\n from os import _exit, getpid, kill\n {deed}")
    assert said.message == f"[dataset] name: `own.py:data`: its process {end}"


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputMissing, match=r"^\[dataset\] name: no file `other.py` next to the job"):
        load(UserData(name="other.py:data"), tmp_path)


CODE = """
import pathlib, random
random.seed(1)
pathlib.Path(__file__).with_name("imported").touch()
def data(items=100, wait=0):
    import time
    time.sleep(wait)
    return [([x := random.random(), y := random.random()], int(x > y)) for _ in range(items)]
"""


def test_a_whole_run(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(CODE)
    job = write_job(tmp_path, 'dataset={name="own.py:data", validation=20}')
    assert partrain("validate", job).code == 0
    assert not (tmp_path / "imported").exists()
    said = partrain("run", job, "--out", tmp_path / "run", "--quiet")
    assert said.code == 0, said
    assert summary(tmp_path / "run")["metrics"]["accuracy"] > 0.3


@pytest.mark.representative
def test_what_only_loading_tells_is_checked_then(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(CODE)
    job = write_job(tmp_path, 'dataset={name="own.py:data", validation=20, items=25}')
    said = partrain("run", job, "--out", tmp_path / "run", "--quiet")
    assert said.code == 78
    assert "`batch_size` 8 is more than the 3 items of the smallest partition" in said.err


def test_it_ends_with_the_command(tmp_path: Path) -> None:
    """The user presses Ctrl-C while user code runs."""
    (tmp_path / "own.py").write_text(CODE)
    job = write_job(tmp_path, 'dataset={name="own.py:data", wait=600}')
    with Command(("run", job, "--quiet"), tmp_path / "here") as command:
        eventually(lambda: (tmp_path / "imported").exists(), "the data set to be imported")
        assert descendants(command.process.pid)
        command.interrupt()
        assert command.wait().code == 130


@pytest.mark.usefixtures("stranger")
@pytest.mark.slow
def test_a_network_of_ours_is_used_without_the_data_sets_code(tmp_path: Path) -> None:
    """Only commands that need the data set run its code, and they ask for trust."""
    (tmp_path / "own.py").write_text(
        "import numpy as np\ninputs = np.random.default_rng(0).normal(size=(60, 2))\n"
        "class Data: inputs, targets = inputs, (inputs[:, 0] > 0).astype(int)\n"
    )
    run = train(tmp_path, 'dataset={name="own.py:Data", validation=20}')
    np.savez(tmp_path / "new.npz", inputs=np.ones((3, 2), "f4"), targets=np.ones(3, int))
    (tmp_path / "own.py").unlink()
    new, exported = tmp_path / "new.npz", tmp_path / "out"
    for words in ("predict", run, "-i", new), ("evaluate", run, "-i", new), ("export", run, "-f", "onnx", "-o", exported):
        said = partrain(*words)
        assert said.code == 0, said
    for words in ("evaluate", run), ("soup", run, run, "-o", tmp_path / "soup.h5"):
        said = partrain(*words)
        assert (said.code, said.errors) == (77, ["not-trusted"]), said
        assert "`own.py:Data`" in said.err


def test_an_image_that_does_not_decode_has_its_number(tmp_path: Path) -> None:
    """The image is decoded only when its numbers are needed."""
    Image.new("L", (64, 64)).save(tmp_path / "whole.png")
    (tmp_path / "half.png").write_bytes((tmp_path / "whole.png").read_bytes()[:-30])
    failure = refused(
        tmp_path,
        """
        import pathlib
        from PIL import Image

        def data():
            here = pathlib.Path(__file__).parent
            return [(Image.open(here / f"{name}.png"), 0) for name in ("whole", "whole", "half")]
        """,
    )
    assert failure.message.startswith("[dataset] name: `own.py:data`: item 2: its input: OSError: ")


@pytest.mark.representative
def test_arrays_of_objects_are_no_numbers(tmp_path: Path) -> None:
    failure = refused(
        tmp_path,
        """
        import numpy as np

        class data:
            inputs, targets = np.array([[1.0], [2.0, 3.0]], dtype=object), np.zeros(2, int)
        """,
    )
    assert failure.message == "[dataset] name: `own.py:data`: item 0: its input is no array of numbers, but of object"


def test_one_that_freezes_in_the_middle_of_a_message_is_not_waited_for(tmp_path: Path) -> None:
    code = """
import os, stat, time

def data():
    for number in range(3, 64):
        try:
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                os.write(number, bytes([0, 0, 1, 0]) + b"{")  # a message of 256 bytes
        except OSError:
            pass
    time.sleep(1000)
"""
    with waiting_at_most(0.5), pytest.raises(Stalled, match=r"`own.py:data` gave no item for 0.5 s; raise \[transport\]"):
        loaded(tmp_path, code)


def test_one_that_hangs_is_not_waited_for(tmp_path: Path) -> None:
    code = "import time\nclass data(list):\n def __len__(self): return 3\n def __getitem__(self, n):\n  time.sleep(1000 * (n > 1)); return 1.0, n"
    with (
        waiting_at_most(0.5),
        pytest.raises(Stalled, match=r"`own.py:data` gave no item for 0.5 s; raise \[transport\] stall_seconds"),
    ):
        loaded(tmp_path, code)


@pytest.mark.slow
def test_one_that_takes_its_time_gives_signs_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All items together take longer than the limit, and one does not. The limit holds from the first item on."""
    began = tmp_path / "began"
    limit = property(lambda self: 4.0 if began.exists() else 100.0, lambda self, seconds: None)
    monkeypatch.setattr(pipe.DataProcess, "_limit_s", limit, raising=False)
    code = f"import pathlib, time\nclass data(list):\n def __len__(self): return 8\n def __getitem__(self, n):\n  pathlib.Path({str(began)!r}).touch(); time.sleep(0.7); return 1.0, n"
    assert loaded(tmp_path, code).items == 8


def test_one_that_closes_its_stream_and_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gives no more items, so it is killed soon."""
    monkeypatch.setattr(pipe, "EXIT_S", 0.3)
    code = "import os, time\nclass data(list):\n def __len__(self): return 3\n def __getitem__(self, n):\n  if n > 1: os.closerange(0, 64); time.sleep(1000)\n  return 1.0, n"
    failure = refused(tmp_path, code)
    assert failure.message == "[dataset] name: `own.py:data` closed the stream of its items before all items were read"


@pytest.mark.parametrize(
    "words", [("plan", "JOB"), ("data", "inspect", "JOB"), ("evaluate", "RUN", "--trust-code")], ids=lambda words: words[0]
)
def test_no_command_waits_for_one_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    """Nor for one that hangs only later, as a server that is down does."""
    code = "import pathlib, time\nHERE = pathlib.Path(__file__).parent\nclass data(list):\n def __len__(self): return 60\n def __getitem__(self, n):\n  time.sleep(1000 * (n > 1 and (HERE / 'down').exists())); return (1.0, float(n)), n % 3"
    (tmp_path / "own.py").write_text(code)
    dataset = 'dataset={name="own.py:data", validation=10}'
    job = write_job(tmp_path, dataset, "transport.stall_seconds=0.4", "stop.rounds=1")
    count_stopped_only(monkeypatch)  # a training on a busy machine may stand still for so long
    if "RUN" in words:
        assert partrain("run", job, "--out", tmp_path / "run", "-q").code == 0
    (tmp_path / "down").touch()
    monkeypatch.setattr(jobs, "STARTUP_LIMIT_S", 0.0)
    said = partrain(*[{"JOB": job, "RUN": tmp_path / "run"}.get(word, word) for word in words])
    assert (said.code, said.errors) == (75, ["stalled"]), said
    assert "[dataset] name: `own.py:data` gave no item for 0.4 s; raise [transport] stall_seconds" in said.err
