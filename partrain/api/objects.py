"""The objects of a script as tables of a job: networks, tasks, arrays, DataFrames and torch Datasets."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from copy import deepcopy
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from partrain.api.arguments import check_keys
from partrain.config.python_objects import ABOUT, ARRAYS, FRAMES, PYTHON, PythonObjects, dumps
from partrain.config.section import Section
from partrain.data.base import WEIGHTS
from partrain.data.python.convert import is_boolean, to_array
from partrain.data.python.frames import NAME, TEST_NAME, Frames, add_column, as_frame, is_frame, is_series
from partrain.data.python.several import Ragged, inputs_of, unequal
from partrain.errors import BadJob
from partrain.tasks.kinds import KINDS

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROLES = ("inputs", "targets", "test_inputs", "test_targets", WEIGHTS)
FORMS = (
    "(X, y), (X, y, X_test, y_test), a torch Dataset, an object with a method `stream`, a dict with `inputs` and `targets`, a dict with `data` (a DataFrame, a table of Arrow or a list of rows) and `target`, "
    "or the keys of [dataset]"
)


class Given(NamedTuple):
    """Tables of a job, and the objects that replace some of them."""

    tables: dict[str, Any]
    objects: PythonObjects
    items: int | None
    """Number of items; 0: known only after reading them; None: the objects do not give it."""


def given(model: Any = None, dataset: Any = None, task: Any = None, hooks: Any = None, *, whole: bool = True) -> Given:
    """Turn the arguments of `train` and `load` into tables. Raises BadJob for an object that cannot be one.

    `whole`: all arguments of classes are given; otherwise a checkpoint has the others.
    """
    tables: dict[str, Any] = {}
    pickled: dict[str, bytes] = {}
    data, items = None, None
    for name, value in (("model", model), ("task", task)):
        if value is not None:
            tables[name], code = _code_table(name, value, whole=whole)
            pickled |= {name: code} if code else {}
    if hooks is not None:
        tables["hooks"], code = _hooks_table(hooks)
        pickled |= {"hooks": code} if code else {}
    if dataset is not None:
        tables["dataset"], data, items, code = _dataset_table(dataset)
        pickled |= {"dataset": code} if code else {}
        if _embeds_tokens(tables.get("model")) and _are_tokens(data) and isinstance(tables["dataset"], dict):
            tables["dataset"] = {"tokens": True} | tables["dataset"]
        if isinstance(data, dict) and _takes_numbers(tables.get("task")):  # whole numbers would be classes
            data = {
                role: array.astype(np.float64)
                if isinstance(array, np.ndarray) and role.endswith("targets") and array.dtype.kind in "iu"
                else array
                for role, array in data.items()
            }
    return Given(tables, PythonObjects(pickled, data), items)


def _embeds_tokens(model: Any) -> bool:
    """Return whether a `[model]` table names a network that takes items (L,) as tokens only."""
    name = str(model.get("name", "")) if isinstance(model, Mapping) else str(getattr(model, "name", ""))
    return name in ("rnn", "lstm", "gru", "transformer", "bag")


def _are_tokens(data: Any) -> bool:
    """Return whether inputs are whole numbers (n, L)."""
    inputs = data.get("inputs") if isinstance(data, dict) else None
    return isinstance(inputs, np.ndarray) and inputs.dtype.kind in "iu" and inputs.dtype != np.uint8 and inputs.ndim == 2


def _takes_numbers(task: Any) -> bool:
    """Return whether a `[task]` table names a kind whose targets are numbers."""
    name = str(task.get("kind", "")) if isinstance(task, Mapping) else str(getattr(task, "kind", ""))
    return name in KINDS and KINDS[name].targets == "numbers"


def _code_table(name: str, value: Any, *, whole: bool) -> tuple[Any, bytes]:
    """Return the table of `[model]` or `[task]`, and the pickle of its object, if any."""
    if isinstance(value, str):
        return {"kind" if name == "task" and ":" not in value else "name": value}, b""
    keys = dict(value) if isinstance(value, Mapping) else {}
    thing = keys.pop("name", None) if isinstance(value, Mapping) else value
    if isinstance(thing, Section) or (isinstance(value, Mapping) and (thing is None or isinstance(thing, str))):
        return value, b""
    if not callable(thing) and name == "model":
        raise BadJob(
            f'model: an object of type `{type(thing).__name__}` is no network; give an nn.Module, its class, or a name as "mlp"'
        )
    is_module = isinstance(thing, _module_class())
    if is_module and (hooked := [name for name, parameter in thing.named_parameters() if parameter._backward_hooks]):
        what = f"parameter `{hooked[0]}` has a hook of `register_hook`, which would not reach the workers"
        raise BadJob(f"model: {what}; register it in `__init__` of the network's class, and give the class instead of an object")
    if name == "task" and not isinstance(thing, FunctionType) and not _is_task(thing):
        raise BadJob(
            f'task: `{getattr(thing, "__name__", type(thing).__name__)}` is no task; give a kind as "regression", or a subclass of partrain.Task'
        )
    if is_module and any(tensor.device.type != "cpu" for tensor in (*thing.parameters(), *thing.buffers())):
        thing = deepcopy(thing).cpu()
    kind = thing if isinstance(thing, type | FunctionType) else type(thing)
    about = {"name": getattr(kind, "__qualname__", type(thing).__name__), "digest": digest(thing)}
    if is_module:
        about["initial"] = _numbers(thing)
    made = is_module or (name == "task" and not isinstance(thing, type | FunctionType))
    return {"name": PYTHON, **check_keys(name, thing, keys, made=made, whole=whole), ABOUT: about}, dumps(name, thing)


def _hooks_table(value: Any) -> tuple[Any, bytes]:
    """Return the table of `[hooks]`, and the pickle of its function, if it is not given by name."""
    keys = dict(value) if isinstance(value, Mapping) else {"after_judgement": value}
    function = keys.get("after_judgement")
    if isinstance(value, Section) or not callable(function):
        return value if isinstance(value, Section) else keys, b""
    return {**keys, "after_judgement": PYTHON}, dumps("hooks", function)


def _module_class() -> Any:
    from torch import nn

    return nn.Module


def _is_task(thing: Any) -> bool:
    from partrain.tasks.task import Task

    return isinstance(thing, Task) or (isinstance(thing, type) and issubclass(thing, Task))


def digest(thing: Any) -> str:
    """Digest the structure and the code of a network or task, not its parameters: SHA-256 (hex, 16 digits)."""
    total = hashlib.sha256()
    if isinstance(thing, _module_class()):
        total.update(repr(thing).encode())
        for name, tensor in thing.state_dict(keep_vars=True).items():
            form = (tuple(tensor.shape), str(tensor.dtype)) if hasattr(tensor, "dtype") and not _is_lazy(tensor) else ()
            total.update(repr((name, form, getattr(tensor, "requires_grad", False))).encode())
        classes = {type(module) for module in thing.modules()}
    else:
        classes = {thing if isinstance(thing, type) else type(thing)}
    if isinstance(thing, FunctionType):
        _add_code(total, thing.__code__)
    for kind in sorted(
        {base for cls in classes for base in cls.__mro__ if not _is_librarys(base)},
        key=lambda base: base.__qualname__,
    ):
        total.update(kind.__qualname__.encode())
        for name, value in sorted(vars(kind).items()):
            function = getattr(value, "__func__", value)
            if isinstance(function, FunctionType):
                total.update(name.encode())
                _add_code(total, function.__code__)
    return total.hexdigest()[:16]


def _is_lazy(tensor: Any) -> bool:
    from torch.nn.parameter import is_lazy

    return bool(is_lazy(tensor))


def _is_librarys(kind: type) -> bool:
    """Return whether a class belongs to Python, torch or partrain, whose versions the checkpoint records."""
    return kind.__module__.partition(".")[0] in ("builtins", "abc", "typing", "functools", "torch", "partrain")


def _add_code(total: Any, code: CodeType) -> None:
    """Add compiled code: instructions, names and constants, without file names and lines."""
    total.update(code.co_code)
    total.update(repr(code.co_names).encode())
    for const in code.co_consts:
        if isinstance(const, CodeType):
            _add_code(total, const)
        else:
            total.update(repr(sorted(map(repr, const)) if isinstance(const, frozenset) else const).encode())


def _numbers(module: Any) -> str:
    """Digest the initial parameters and buffers: SHA-256 (hex, 16 digits)."""
    total = hashlib.sha256()
    for name, tensor in module.state_dict().items():
        total.update(name.encode())
        if hasattr(tensor, "numpy") and not _is_lazy(tensor):
            total.update(to_array(tensor, name).tobytes())
    return total.hexdigest()[:16]


def _dataset_table(value: Any) -> tuple[Any, Any, int | None, bytes]:
    """Return the table of `[dataset]`, arrays or DataFrames, the number of items, and the pickle of a Dataset."""
    value = as_frame(value)
    if isinstance(value, Section):
        return value, None, None, b""
    if isinstance(value, str):
        return {"name": value}, None, None, b""
    if isinstance(value, Mapping):
        return _dict_table(dict(value))
    if isinstance(value, tuple | list):
        if len(value) not in (2, 4):
            raise BadJob(f"dataset: a {type(value).__name__} of {len(value)}; expected {FORMS}")
        return _parts(dict(zip(ROLES, value, strict=False)), {})
    if hasattr(value, "__array__") and not hasattr(value, "columns"):
        raise BadJob("dataset: an array alone has no targets: give dataset=(X, y)")
    if is_frame(value):
        raise BadJob('dataset: a DataFrame alone names no target; give dataset={"data": frame, "target": "COLUMN"}')
    return _items(value, {})


def _dict_table(keys: dict[str, Any]) -> tuple[Any, Any, int | None, bytes]:
    if "data" in keys:
        data, test = as_frame(keys.pop("data")), as_frame(keys.pop("test", None))
        if not is_frame(data):
            return _items(data, keys)
        return _frame_table(data, test, keys)
    parts = {role: keys[role] for role in ROLES if role in keys and not isinstance(keys[role], str) and "kind" not in keys}
    if not {"inputs", "targets"} <= parts.keys():
        return keys, None, None, b""
    return _parts(parts, {key: value for key, value in keys.items() if key not in parts})


def _parts(parts: dict[str, Any], keys: dict[str, Any]) -> tuple[Any, Any, int | None, bytes]:
    """Return the table for inputs and targets given separately."""
    if ("test_inputs" in parts) != ("test_targets" in parts):
        raise BadJob("dataset: test_inputs and test_targets go together")
    parts = {role: as_frame(part) if role.endswith("inputs") else part for role, part in parts.items()}
    if is_frame(parts["inputs"]):
        column = str(getattr(parts["targets"], "name", None) or "target")
        frames = [
            with_column(parts[f"{prefix}inputs"], parts[f"{prefix}targets"], column)
            for prefix in ("", "test_")
            if f"{prefix}inputs" in parts
        ]
        if WEIGHTS in parts:
            frames[0], keys = with_column(frames[0], parts[WEIGHTS], WEIGHTS, "weights"), {WEIGHTS: WEIGHTS, **keys}
        return _frame_table(frames[0], frames[1] if frames[1:] else None, {"target": column, **keys})
    arrays: dict[str, Any] = {}
    for prefix in ("", "test_")[: len(parts) // 2]:
        answers = parts[f"{prefix}targets"]
        arrays[f"{prefix}targets"] = (
            Ragged.of(answers, f"`{prefix}targets`") if unequal(answers) else to_array(answers, f"`{prefix}targets`")
        )
        if not prefix and is_boolean(answers):
            keys = {"booleans": True, **keys}
        count = len(answers) if hasattr(answers, "__len__") else 0
        arrays[f"{prefix}inputs"] = inputs_of(parts[f"{prefix}inputs"], count, f"`{prefix}inputs`")
    if WEIGHTS in parts:
        arrays[WEIGHTS] = to_array(parts[WEIGHTS], f"`{WEIGHTS}`")
    inputs = arrays["inputs"]
    if isinstance(inputs, Ragged) and inputs.values.ndim == 1 and inputs.values.dtype.kind in "iu":
        keys = {"tokens": True, **keys}  # elements of one number are not steps of a series
    items = len(inputs) if not isinstance(inputs, np.ndarray) or inputs.ndim else 0
    return {"name": ARRAYS, **keys}, {role: arrays[role] for role in ROLES if role in arrays}, items, b""


def _frame_table(data: Any, test: Any, keys: dict[str, Any]) -> tuple[Any, Any, int | None, bytes]:
    tested = {} if test is None else {"test_path": TEST_NAME}
    kind = keys.pop("kind", None)
    if kind not in FRAMES:
        raise BadJob(f'dataset: a DataFrame of kind "{kind}"; expected "series", "documents", or none for a table')
    drop = keys.get("drop")
    frames = Frames(data, test, drop if isinstance(drop, list | tuple) else ())
    return {"name": FRAMES[kind], "path": NAME, **tested, **keys}, frames, 0 if kind else len(data), b""


def _items(data: Any, keys: dict[str, Any]) -> tuple[Any, Any, int | None, bytes]:
    """Return the table of a torch Dataset or another sequence of items, or of a stream."""
    name = type(data).__name__
    if isinstance(data, type):
        raise BadJob(f"dataset: `{data.__name__}` is a class: give an object of it, as {data.__name__}()")
    if callable(getattr(data, "stream", None)) and not hasattr(data, "__getitem__"):
        length = getattr(data, "length", None)
        count = length(rank=0, size=1) if callable(length) else None
        keys = check_keys("dataset", data, keys, made=True)
        return {"name": PYTHON, **keys, ABOUT: {"name": name}}, None, count, dumps("dataset", data)
    if hasattr(data, "batch_sampler"):
        raise BadJob(
            f"dataset: a `{name}` gives batches: give its data set, as loader.dataset; `batch_size` belongs to the optimizer"
        )
    if isinstance(data, Iterator):
        advice = "give an IterableDataset, or a list of items"
        raise BadJob(f"dataset: a `{name}` gives its items once, and cannot be sent to another process; {advice}")
    lacking = [name for name in ("__len__", "__getitem__") if not hasattr(data, name)]
    if lacking and not hasattr(data, "__iter__"):
        raise BadJob(f"dataset: an object of type `{name}`, which has no {lacking[0]}; expected {FORMS}")
    keys = check_keys("dataset", data, keys, made=True)
    return {"name": PYTHON, **keys, ABOUT: {"name": name}}, None, 0 if lacking else len(data), dumps("dataset", data)


def with_column(frame: Any, values: Any, column: str, what: str = "targets") -> Any:
    """Return a DataFrame with an additional column: the targets of the rows, called `what` in messages."""
    if column in list(map(str, frame.columns)):
        raise BadJob(f"dataset: the DataFrame has a column `{column}` already, as the {what} are called: rename one")
    cells = values if is_series(values) else to_array(values, what)
    if len(cells) != len(frame):
        raise BadJob(f"dataset: {len(cells):,} {what} for {len(frame):,} rows")
    return add_column(frame, column, cells)


def arrays_of(data: Any) -> dict[str, NDArray[Any]]:
    """Read the items of a torch Dataset into arrays `inputs` and `targets`."""
    from partrain.data.user.process import UserItems

    blocks = list(UserItems(data, f"`{type(data).__name__}`").blocks())
    return {role: np.concatenate([block[index] for block in blocks]) for index, role in enumerate(("inputs", "targets"))}
