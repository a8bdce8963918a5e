"""The forms of data: each is one object that names the modules that handle it. A module is imported when first needed.

A new form needs the modules that it names, and one object in `FORMS`. If its items are never taken from files unchanged, the
schema of its codec belongs in `checkpoint.codecs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from partrain.config.python_objects import ARRAYS, FRAMES


@dataclass(frozen=True)
class DataForm:
    """A form of data."""

    sections: Mapping[str, str]
    """`module:Class` of the `[dataset]` table by its `kind`. A section never imports its readers."""
    headers: str
    """Module with `read_spec(section, folder)`: reads headers only, without numpy."""
    loader: str
    """Module with `load(section, folder, allocate, training)`; if a section has `group`, also with `groups_by_part(section, folder, dataset)`."""
    items: str = ""
    """Module with `read_items(network, path, kind, wanted)`: the items of a file or folder that a network answers."""
    proposal: str = ""
    """Module with `propose(path, shown, asked, folder)`: the job that `init` writes for a file or folder; None for another
    form."""
    codec: str = ""
    """`form` of its codec in checkpoints; "" if its items may be taken unchanged."""
    suffixes: tuple[str, ...] = ()
    """Suffixes of its files, in lower case, if they determine the form."""
    starts: Mapping[bytes, str] = field(default_factory=dict)
    """The `kind` of its files by their first bytes, if these determine it."""
    in_memory: Mapping[str, str] = field(default_factory=dict)
    """`module:Class` of the tables of a Python script, by `name`. Job files cannot use them."""

    def of_file(self, path: Path, start: bytes) -> str | None:
        """Return the `kind` of a file of this form, by its suffix or its first bytes; None if they do not determine it."""
        if path.suffix.lower() in self.suffixes:
            return next(iter(self.sections))
        return next((kind for first, kind in self.starts.items() if start.startswith(first)), None)


PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm")
"""Suffixes of images that can be read."""
CONVERTED = b"PTITEMS1"
"""First bytes of a file that `partrain data convert` writes."""
_TABLES, _ARRAYS, _INPUTS = "partrain.data.tables", "partrain.data.arrays", "partrain.inference.inputs"
_ARRAY_SECTIONS = {"mnist": "Mnist", "idx": "Idx", "npz": "Npz", "npy": "Npy", "hdf5": "Hdf5"}

FORMS = (
    DataForm(
        {"csv": f"{_TABLES}.sections:Csv", "parquet": f"{_TABLES}.sections:Parquet", "table": f"{_TABLES}.sections:AnyTable"},
        headers=f"{_TABLES}.schema",
        loader=f"{_TABLES}.load",
        items=f"{_INPUTS}.tables",
        proposal="partrain.templates.from_table",
        codec="table",
        in_memory={FRAMES[None]: "partrain.data.python.section:PythonTable"},
    ),
    DataForm(
        {"series": f"{_TABLES}.series:Series"},
        headers=f"{_TABLES}.series",
        loader=f"{_TABLES}.series",
        items=f"{_INPUTS}.tables",
        codec="series",
        in_memory={FRAMES["series"]: "partrain.data.python.section:PythonSeries"},
    ),
    DataForm(
        {"documents": "partrain.data.documents:Documents"},
        headers="partrain.data.documents",
        loader="partrain.data.documents",
        items=f"{_INPUTS}.documents",
        proposal="partrain.templates.from_documents",
        codec="documents",
        in_memory={FRAMES["documents"]: "partrain.data.python.section:PythonDocuments"},
    ),
    DataForm(
        {"images": "partrain.data.images:ImagesSection"},
        headers="partrain.data.images",
        loader="partrain.data.images",
        items=f"{_INPUTS}.images",
        proposal="partrain.templates.from_images",
        suffixes=PICTURES,
    ),
    DataForm(
        {"text": "partrain.data.text:TextSection"},
        headers="partrain.data.text",
        loader="partrain.data.text",
        items=f"{_INPUTS}.text",
        proposal="partrain.templates.from_text",
        codec="text",
    ),
    DataForm(
        {name: f"{_ARRAYS}.sections:{section}" for name, section in _ARRAY_SECTIONS.items()},
        headers=f"{_ARRAYS}.headers",
        loader=f"{_ARRAYS}.load",
        items=f"{_INPUTS}.arrays",
        proposal="partrain.templates.from_arrays",
        starts={
            b"PK\x03\x04": "npz",
            b"PK\x05\x06": "npz",
            b"\x93NUM": "npy",
            b"\x89HDF": "hdf5",
            b"MATLAB 7": "hdf5",
            b"\x1f\x8b": "idx",
            b"\0\0": "idx",
        },
    ),
    DataForm(
        {"mapped": f"{_ARRAYS}.mapped:Mapped"},
        headers=f"{_ARRAYS}.mapped",
        loader=f"{_ARRAYS}.mapped",
        items=f"{_INPUTS}.mapped",
        starts={CONVERTED: "mapped"},
    ),
    DataForm(
        {"huggingface": f"{_ARRAYS}.huggingface:HuggingFace"},
        headers=f"{_ARRAYS}.huggingface",
        loader=f"{_ARRAYS}.huggingface",
        items=f"{_INPUTS}.arrays",
    ),
    DataForm(
        {"synthetic": "partrain.data.generated.section:Synthetic"},
        headers="partrain.data.generated.section",
        loader="partrain.data.generated.generate",
    ),
    DataForm(
        {"user": "partrain.data.user.section:UserData"}, headers="partrain.data.user.load", loader="partrain.data.user.load"
    ),
    DataForm(
        {},
        headers="partrain.data.python.load",
        loader="partrain.data.python.load",
        in_memory={ARRAYS: "partrain.data.python.section:PythonArrays"},
    ),
)
"""All forms."""
SECTIONS = {kind: section for form in FORMS for kind, section in form.sections.items()}
"""Tables of job files, by `kind`."""
IN_MEMORY = {name: section for form in FORMS for name, section in form.in_memory.items()}
"""Tables of Python scripts, by `name`."""


def form_of(kind: str) -> DataForm:
    """Return the form of the data that a `[dataset]` table of this kind names."""
    return next(form for form in FORMS if kind in form.sections or kind in form.in_memory)
