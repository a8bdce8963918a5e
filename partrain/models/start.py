"""The start of a network from the arrays of another: match by name and shape, then overwrite the drawn numbers.

Names in the file are a state dict's. `rename` replaces prefixes, by whole dotted parts: `a` fits `a` and `a.b`, not `ab`. The
longest prefix that fits a name counts, once; the empty prefix fits every name. `except` has patterns like `freeze`.

Rows of embeddings, and the answers of a language network, belong to words: they are matched by word, not by number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from partrain.config.problems import Finding, WrongValue, did_you_mean
from partrain.display.text_table import table

if TYPE_CHECKING:
    from partrain.models.sections import Network

MAX_ROWS = 200
"""Maximum number of rows of the table in a message."""
MAX_NAMES = 6
"""Maximum number of names in the note of the arrays taken."""

FROM = ("model", "from")

MATCHED, EXCEPTED = "matched", "excepted"
HEAD, COUNT = "of other classes, starts from random numbers", "not counted in the file"
LEFT_OUT = "not in the network"
MISSING, LEFT_OVER = "missing in file", "left over in the file"
SHAPE, TYPE = "other shape", "other type"
PROBLEMS = (MISSING, SHAPE, TYPE, LEFT_OVER)
"""States that `strict` refuses."""
NOTED = (*PROBLEMS, EXCEPTED, HEAD, LEFT_OUT)
"""States of arrays that the note names."""

_DENSE_LAYER = re.compile(r"^(.*denselayer\d+\.(?:norm|relu|conv))\.([12]\..*)$")
"""Names of torchvision's published DenseNets from a time when names of modules could have dots."""


@dataclass(frozen=True)
class ArrayMatch:
    """One name, in the network, in the file, or in both."""

    name: str
    """Name in the network; for an array that is left over, in the file after `rename`."""
    own: Tensor | None
    """The network's array."""
    stored: Tensor | None
    """The file's array."""
    state: str


def start_from(
    module: nn.Module,
    stored: Mapping[str, object],
    section: Network,
    file: str,
    outputs: int | None = None,
    vocabularies: tuple[Sequence[str], Sequence[str]] = ((), ()),
) -> str:
    """Overwrite a network's parameters and buffers by the arrays of a file. Return a note of the arrays taken.

    Published weights may have another number of classes: the arrays of the last layer then keep their drawn numbers. They may
    also have arrays for parts that the network lacks, such as auxiliary classifiers.

    Args:
        module: The network, initialized as without a file.
        stored: The file's arrays, by their names there.
        section: The `[model]` table.
        file: The file's name, for messages.
        outputs: Number of classes or numbers in the network's answer.
        vocabularies: The words by number, of the file's network and of this one, if both have them.

    Raises:
        WrongValue: `rename` or `except` names nothing; names or shapes differ under `strict`; or nothing matches.
    """
    renamed = _renamed(_tensors(stored, file), section.rename, file)
    if section.starts_published:
        renamed = {_DENSE_LAYER.sub(r"\1\2", name): tensor for name, tensor in renamed.items()}
    words = _rows_by_word(module, renamed, *vocabularies, outputs)
    rows = match(module, renamed, section.start_exceptions, file)
    if section.starts_published:
        rows = [_published(row, outputs) for row in rows]
    wrong = [row for row in rows if row.state in PROBLEMS]
    taken = [row for row in rows if row.state == MATCHED]
    if (wrong and section.strict) or not taken:
        raise WrongValue(_refusal(rows, file), "\n".join(_table(rows)))
    with torch.no_grad():
        for row in taken:
            if row.own is not None and row.stored is not None:
                _copy(row.own, row.stored, row.name, file)
    return _note(rows, file) + words


def _rows_by_word(
    module: nn.Module, stored: dict[str, Tensor], before: Sequence[str], now: Sequence[str], outputs: int | None
) -> str:
    """Give each word of this network its row of the file's arrays: replace these arrays. New words keep their drawn numbers.

    Return a note; "" if both networks number their words alike, or have none.
    """
    if not before or not now or list(before) == list(now):
        return ""
    names = [
        f"{name}.{part}".lstrip(".")
        for name, layer in module.named_modules()
        for part, tensor in layer.named_parameters(recurse=False)
        if (isinstance(layer, nn.Embedding) and layer.num_embeddings == len(now))
        or (outputs == len(now) and isinstance(layer, nn.Linear) and len(tensor) == outputs)
    ]
    places = {word: place for place, word in enumerate(before)}
    pairs = [(number, places[word]) for number, word in enumerate(now) if word in places]
    own, theirs = [number for number, _ in pairs], [place for _, place in pairs]
    state = module.state_dict()
    for name in names:
        if (tensor := stored.get(name)) is not None and tensor.shape == (len(before), *state[name].shape[1:]):
            rows = state[name].detach().clone().to(tensor.dtype)
            rows[own] = tensor[theirs]
            stored[name] = rows
    rest = ", the others start from random numbers" if len(pairs) < len(now) else ""
    return f"; it knows {len(pairs):,} of {len(now):,} words{rest}"


def match(module: nn.Module, stored: Mapping[str, Tensor], exceptions: list[str], file: str) -> list[ArrayMatch]:
    """Compare the arrays of a network with those of a file, name by name. Raises WrongValue for a pattern that matches nothing."""
    arrays = {name: value for name, value in module.state_dict(keep_vars=True).items() if isinstance(value, Tensor)}
    for number, pattern in enumerate(exceptions):
        if not any(fnmatchcase(name, pattern) for name in arrays):
            names = [*list(arrays)[:MAX_NAMES], *(["..."] if len(arrays) > MAX_NAMES else [])]
            what = f'no parameter or buffer is called "{pattern}"'
            raise WrongValue(Finding(("model", "except", number), what, f"there are {', '.join(names)}"))

    def named(name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in exceptions)

    kept = {id(parameter) for name, parameter in arrays.items() if named(name)}
    covered = {id(parameter) for name, parameter in arrays.items() if name in stored and stored[name].shape == parameter.shape}
    rows = []
    for name, tensor in arrays.items():
        stored_tensor = stored.get(name)
        if id(tensor) in kept:  # both names of a tied parameter count, as in `freeze`
            state = EXCEPTED
        elif stored_tensor is None:  # formats without shared tensors store a tied parameter under one of its names
            owner, _, own = name.rpartition(".")
            uncounted = own == "num_batches_tracked" and f"{owner}.running_mean" in stored  # as in files before torch 0.4.1
            state = MATCHED if id(tensor) in covered else COUNT if uncounted else MISSING
        else:
            state = SHAPE if tensor.shape != stored_tensor.shape else TYPE if not _convertible(stored_tensor, tensor) else MATCHED
        rows.append(ArrayMatch(name, tensor, stored_tensor, state))
    others = [name for name in stored if name not in arrays]
    return rows + [ArrayMatch(name, None, stored[name], EXCEPTED if named(name) else LEFT_OVER) for name in others]


def _published(row: ArrayMatch, outputs: int | None) -> ArrayMatch:
    """Interpret a difference from published weights: another number of classes, or a part that the network lacks."""
    if row.state == LEFT_OVER:
        return replace(row, state=LEFT_OUT)
    if row.state == SHAPE and row.own is not None and row.stored is not None:
        answers = row.own.shape[:1] == (outputs,) and row.own.shape[1:] == row.stored.shape[1:]
        return replace(row, state=HEAD) if answers else row
    return row


def _tensors(stored: Mapping[str, object], file: str) -> dict[str, Tensor]:
    """Return the entries of a state dict, all of which must be tensors."""
    if inner := [name for name, value in stored.items() if isinstance(value, Mapping)]:
        advice = f'write that table to its own file: torch.save(torch.load(FILE)["{inner[0]}"], "weights.pt")'
        raise WrongValue(Finding(FROM, f"{file} holds no state dict, but tables such as `{inner[0]}`", advice))
    if other := [name for name, value in stored.items() if not isinstance(value, Tensor)]:
        raise WrongValue(Finding(FROM, f"{file}: `{other[0]}` is no tensor", "save the state dict of a network"))
    return {name: value for name, value in stored.items() if isinstance(value, Tensor)}


def _renamed(stored: Mapping[str, Tensor], prefixes: Mapping[str, str], file: str) -> dict[str, Tensor]:
    """Replace prefixes of names. Raises WrongValue for a prefix of no name, and for names that become equal."""
    parts = {old.rstrip("."): new.rstrip(".") for old, new in prefixes.items()}
    used: set[str] = set()
    by_name: dict[str, Tensor] = {}
    origin: dict[str, str] = {}
    for name, tensor in stored.items():
        fitting = [old for old in parts if not old or name == old or name.startswith(f"{old}.")]
        new = name
        if fitting:
            used.update(fitting)
            old = max(fitting, key=len)
            new = ".".join(part for part in (parts[old], name[len(old) :].lstrip(".")) if part)
        if new in by_name:
            what = f"`{origin[new]}` and `{name}` of {file} would both be called `{new}`"
            raise WrongValue(Finding(("model", "rename"), what))
        by_name[new], origin[new] = tensor, name
    if idle := [old for old in parts if old not in used]:
        depth = idle[0].count(".") + 1
        near = did_you_mean(idle[0], dict.fromkeys(".".join(name.split(".")[:depth]) for name in stored))
        prefix = next(old for old in prefixes if old.rstrip(".") == idle[0])
        what = f"no name in {file} begins with `{idle[0]}`"
        raise WrongValue(Finding(("model", "rename", prefix), what, f"did you mean `{near}`?" if near else "", at="key"))
    return by_name


def _convertible(source: Tensor, target: Tensor) -> bool:
    """Return whether a type converts to the network's: floats to floats of any width, integers and booleans to integers."""
    return source.is_floating_point() == target.is_floating_point() and source.is_complex() == target.is_complex()


def _copy(target: Tensor, source: Tensor, name: str, file: str) -> None:
    """Overwrite an array: integers exactly, parameters by finite numbers. Raises WrongValue if that is impossible."""
    values = source.to(target.dtype)
    if not target.is_floating_point() and not torch.equal(values.to(source.dtype), source):
        raise WrongValue(Finding(FROM, f"{file}: `{name}` holds integers that {target.dtype} cannot"))
    if isinstance(target, nn.Parameter) and not torch.isfinite(values).all():
        raise WrongValue(Finding(FROM, f"{file}: parameter `{name}` holds numbers that are not finite in {target.dtype}"))
    target.copy_(values)


def _refusal(rows: list[ArrayMatch], file: str) -> Finding:
    """Report how many arrays do not match, and which keys would help."""
    count = {state: [row.name for row in rows if row.state == state] for state in PROBLEMS}
    total = sum(row.own is not None for row in rows)
    words = ", ".join(f"{len(names)} {state}" for state, names in count.items() if names)
    matched = sum(row.state == MATCHED for row in rows)
    hints = []
    if pair := _shifted(rows):
        hints.append(f'rename = {{"{pair[0]}" = "{pair[1]}"}}')
    if matched and (names := count[MISSING] + count[SHAPE] + count[TYPE]):
        layers = list(dict.fromkeys("".join([*name.rpartition(".")[:2], "*"]) for name in names))
        quoted = ", ".join(f'"{layer}"' for layer in layers) if len(layers) <= MAX_NAMES else "..."
        hints.append(f"except = [{quoted}] for arrays that start from random numbers")
    if matched:
        hints.append("strict = false to take those that match")
    what = f"{file} is not of this network: {matched} of {total} arrays match, {words or 'all are excepted'}"
    return Finding(FROM, what, f"did you mean {', or '.join(hints)}?" if hints else "")


def _shifted(rows: list[ArrayMatch]) -> tuple[str, str] | None:
    """Find prefixes that a `rename` may replace: those of a missing and a left-over array with the same last parts and shape."""
    missing = [row for row in rows if row.state == MISSING]
    for row in (row for row in rows if row.state == LEFT_OVER):
        for other in missing:
            ours, theirs = other.name.split("."), row.name.split(".")
            if row.stored is None or other.own is None or row.stored.shape != other.own.shape:
                continue
            while ours and theirs and ours[-1] == theirs[-1]:
                ours.pop()
                theirs.pop()
            pair = ".".join(theirs), ".".join(ours)
            if len(ours) < len(other.name.split(".")) and _fits(rows, *pair):
                return pair
    return None


def _fits(rows: list[ArrayMatch], old: str, new: str) -> bool:
    """Return whether no array below the prefix would meet an array of another shape under its new name."""
    shapes = {row.name: row.own.shape for row in rows if row.own is not None}
    for row in rows:
        if row.state == LEFT_OVER and row.stored is not None and (not old or row.name.startswith(f"{old}.")):
            name = ".".join(part for part in (new, row.name[len(old) :].lstrip(".")) if part)
            if shapes.get(name, row.stored.shape) != row.stored.shape:
                return False
    return True


def _table(rows: list[ArrayMatch]) -> list[str]:
    """Render all names as a table, problems first if it is long."""
    shown = rows if len(rows) <= MAX_ROWS else sorted(rows, key=lambda row: row.state not in PROBLEMS)[:MAX_ROWS]
    lines = table(
        ("name", "shape in the network", "shape in the file", "state"),
        [(row.name, _form(row.own), _form(row.stored), row.state) for row in shown],
    )
    return lines + [f"... and {len(rows) - MAX_ROWS:,} more"] * (len(rows) > MAX_ROWS)


def _form(array: Tensor | None) -> str:
    if array is None:
        return "-"
    kind = "" if array.dtype == torch.float32 else f" {str(array.dtype).removeprefix('torch.')}"
    return f"({', '.join(map(str, array.shape))}){kind}"


def _note(rows: list[ArrayMatch], file: str) -> str:
    """Summarize the arrays taken, in one line."""
    total = sum(row.own is not None for row in rows)
    words = [f"from {file}: {sum(row.state == MATCHED for row in rows)} of {total} arrays"]
    for state in NOTED:
        if names := [row.name for row in rows if row.state == state and (row.own is not None or state in (LEFT_OVER, LEFT_OUT))]:
            more = [f"{len(names) - MAX_NAMES} more"] if len(names) > MAX_NAMES else []
            words.append(f"{state.removesuffix(' in file')}: {', '.join(names[:MAX_NAMES] + more)}")
    return "; ".join(words)
