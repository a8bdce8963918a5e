"""Items from a file, in the form the network was trained on: arrays, tables, series, images, text."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from partrain.data.arrays.mapped import is_mapped
from partrain.data.fetch import require_regular
from partrain.data.forms import form_of
from partrain.data.tables.formats import NAMES
from partrain.errors import InputMissing
from partrain.inference.inputs.arrays import read_arrays
from partrain.inference.inputs.kinds import STDIN, kind_of, stored_stdin
from partrain.inference.inputs.sample import Sample, Wanted, with_targets

if TYPE_CHECKING:
    from partrain.inference.network import TrainedNetwork


def read(
    network: TrainedNetwork,
    path: Path,
    targets: Path | None = None,
    *,
    labeled: bool = False,
    id_column: str | None = None,
    with_input: bool = False,
    skip_bad: bool = False,
    group: str | None = None,
) -> Sample:
    """Read the items of a file.

    Args:
        network: The network that will answer them.
        path: A file or folder of any kind that jobs take, an image; `-` is standard input.
        targets: NPY or IDX file of the targets, if `path` has neither an array of targets nor a target column.
        labeled: Also read the targets.
        id_column: A column of a table to copy into the answers.
        with_input: Copy all columns of a table into the answers.
        skip_bad: Leave out rows of a table that cannot be read, instead of raising InputMissing for the first.
        group: The column of a table that names the group of each item, if groups are requested.
    """
    if str(path) == "-":
        with stored_stdin(network.kind) as stored:
            try:
                items = read(
                    network,
                    stored,
                    targets,
                    labeled=labeled,
                    id_column=id_column,
                    with_input=with_input,
                    skip_bad=skip_bad,
                    group=group,
                )
            except InputMissing as fault:
                raise InputMissing(fault.message.replace(str(stored), STDIN)) from None
            named = [[text.replace(str(stored), STDIN) for text in texts] for texts in (items.skipped, items.remarks)]
            return replace(items, skipped=named[0], remarks=named[1])
    if not path.exists():
        raise InputMissing(f"no such file: {path}")
    wanted = Wanted(labeled and targets is None and bool(network.kind.targets), id_column, with_input, skip_bad, group)
    kind, codec = _kind(network, require_regular(path)), network.codec
    if wanted.option and (kind not in ("table", "documents") or codec.is_series):
        what = "a series, whose rows are no items" if codec.is_series else f"no table ({NAMES})"
        raise InputMissing(f"{path}: {wanted.option} concerns the rows of a table, and this is {what}")
    if group is not None and kind != "table":
        raise InputMissing(f"{path}: --by-group needs the column `{group}`, and this is no table ({NAMES})")
    sample: Sample
    sample, answers = import_module(form_of(kind).items).read_items(network, path, kind, wanted)
    if not labeled or sample.targets is not None:
        return sample
    if targets is not None:
        answers = read_arrays(network, targets, kind_of(require_regular(targets), network.kind), labeled=False)[0]
    return with_targets(network, sample, answers, targets or path)


def _kind(network: TrainedNetwork, path: Path) -> str:
    """Return the `kind` of the form in which a file is read. A network for texts, or for several inputs, takes one form only."""
    if network.codec.is_documents:
        return "documents"
    several = network.record.parts and not (path.is_file() and is_mapped(path))
    return "npz" if several else kind_of(path, network.kind)
