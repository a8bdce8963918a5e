"""Items from a file, in the form the network was trained on: arrays, tables, series, images, text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from partrain.data.arrays.mapped import is_mapped
from partrain.data.fetch import require_regular
from partrain.data.tables.formats import NAMES
from partrain.errors import InputMissing
from partrain.inference.inputs.arrays import read_arrays
from partrain.inference.inputs.documents import read_documents
from partrain.inference.inputs.images import read_images
from partrain.inference.inputs.kinds import STDIN, kind_of, stored_stdin
from partrain.inference.inputs.mapped import inputs_of, read_converted, targets_of
from partrain.inference.inputs.parts import find_arrays, of_parts
from partrain.inference.inputs.sample import Sample, of_array, of_inputs, of_table, with_targets
from partrain.inference.inputs.tables import open_table
from partrain.inference.inputs.text import read_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
) -> Sample:
    """Read the items of a file.

    Args:
        network: The network that will answer them.
        path: A file or folder of any kind that jobs take, an image; `-` is the standard input.
        targets: NPY or IDX file of the targets, if `path` has neither an array of targets nor a target column.
        labeled: Read the targets too.
        id: A column of a table that answers carry.
        with_input: Answers carry all columns of a table.
        skip_bad: Leave out rows of a table that cannot be read, instead of raising InputMissing for the first.
    """
    if str(path) == "-":
        with stored_stdin(network.kind) as stored:
            try:
                items = read(
                    network, stored, targets, labeled=labeled, id_column=id_column, with_input=with_input, skip_bad=skip_bad
                )
            except InputMissing as fault:
                raise InputMissing(fault.message.replace(str(stored), STDIN)) from None
            named = [[text.replace(str(stored), STDIN) for text in texts] for texts in (items.skipped, items.remarks)]
            return replace(items, skipped=named[0], remarks=named[1])
    if not path.exists():
        raise InputMissing(f"no such file: {path}")
    if network.codec.is_documents:
        wanted = labeled and targets is None
        if skip_bad:
            raise InputMissing(f"{path}: --skip-bad: any text can be read")
        carry = None if with_input else [id_column] if id_column else []
        rows, classes, names, columns = read_documents(network, require_regular(path), labeled=wanted, carry=carry)
        sample = Sample(torch.from_numpy(rows), None, names, columns)
        return with_targets(network, sample, classes, path) if wanted else sample
    several = network.record.parts and not (path.is_file() and is_mapped(path))
    kind = "several" if several else kind_of(require_regular(path), network.kind)
    codec = network.codec
    if (id_column or with_input or skip_bad) and (kind != "table" or codec.is_series):
        option = "--id" if id_column else "--with-input" if with_input else "--skip-bad"
        what = "a series, whose rows are no items" if codec.is_series else f"no table ({NAMES})"
        raise InputMissing(f"{path}: {option} concerns the rows of a table, and this is {what}")
    wanted = labeled and targets is None and bool(network.kind.targets)
    answers: NDArray[Any] | None
    if several:
        sample, answers = of_parts(network, find_arrays(network, require_regular(path)), path)
    elif kind == "mapped":
        dataset = read_converted(network, path)
        newest = None if dataset.newest is None else torch.from_numpy(np.array(dataset.newest))
        sample = Sample(tensor := inputs_of(network, dataset), None, list(map(str, range(len(tensor)))), newest=newest)
        if wanted:
            return replace(sample, targets=targets_of(network, dataset))
        answers = None
    elif kind == "images":
        inputs, answers, names = read_images(network, path, labeled=wanted)
        sample = of_inputs(network, codec.standardize(inputs), path, names)
    elif kind == "table":
        table = open_table(network, path)
        if id_column:
            table.require(id_column, "--id")
        carry = table.names if with_input else [id_column] if id_column else []
        sample, answers = of_table(network, table, labeled=wanted, carry=carry, skip_bad=skip_bad)
    elif kind == "text":
        inputs, answers = read_text(network, path)
        sample = of_inputs(network, inputs, path)
    else:
        raw, answers = read_arrays(network, path, kind, labeled=wanted)
        sample = of_array(network, raw, path)
    if not labeled:
        return sample
    if targets is not None:
        answers = read_arrays(network, targets, kind_of(require_regular(targets), network.kind), labeled=False)[0]
    return with_targets(network, sample, answers, targets or path)
