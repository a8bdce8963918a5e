"""Published weights of torchvision and timm, by name: `[model] pretrained` and `weights`. They are looked for on this machine.

Their names and places are read from the sources of the two packages, without running them: importing them takes seconds.

    torchvision   `hub/checkpoints` in torch's cache ($TORCH_HOME, else `torch` in $XDG_CACHE_HOME or ~/.cache)
    timm          Hugging Face's cache ($HF_HUB_CACHE, else `hub` in $HF_HOME or ~/.cache/huggingface), then torch's

Only with `sha256` is a missing file fetched, into partrain's own cache.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from partrain.config.problems import did_you_mean
from partrain.data.fetch import TransferLines, fetch_url, local_path
from partrain.errors import BadJob, InputMissing
from partrain.models.image_sections import Published, Timm

if TYPE_CHECKING:
    from partrain.models.sections import Network

HUB_FILES = ("model.safetensors", "pytorch_model.bin")
"""Names of weights in a repository of Hugging Face, the best first."""


@dataclass(frozen=True)
class Weights:
    """One published file of weights."""

    label: str
    """Network and name of the weights, for messages."""
    url: str
    """URL of the file; "" if the package does not tell."""
    repository: str = ""
    """Repository on Hugging Face, `owner/name`; "" if it is not there."""
    files: tuple[str, ...] = HUB_FILES
    """Names of the file in the repository."""

    @property
    def source(self) -> str:
        """URL to fetch the file from."""
        return f"https://huggingface.co/{self.repository}/resolve/main/{self.files[0]}" if self.repository else self.url

    @property
    def places(self) -> list[Path]:
        """Paths of the file in the caches of torch and Hugging Face, the first that counts first."""
        found = []
        if self.repository:
            folder = _hub_cache() / f"models--{self.repository.replace('/', '--')}"
            try:
                revision = (folder / "refs" / "main").read_text().strip()
            except OSError:
                revision = "main"
            found += [folder / "snapshots" / revision / name for name in self.files]
        if self.url:
            found.append(_torch_cache() / PurePosixPath(urlsplit(self.url).path).name)
        return found


def find(section: Published) -> Weights:
    """Return the weights that a `[model]` table names. Raises BadJob if the package has none of that name."""
    library, known, default = _catalog(section)
    name = default if section.weights_name in (None, "DEFAULT") else str(section.weights_name)  # torchvision's word
    if name in known:
        return known[name]
    if not known:
        raise BadJob(
            f"[model] the sources of {library} name no weights for `{section.model}`; start `from` a file, or train it anew"
        )
    near = did_you_mean(name, known)
    there = f"did you mean `{near}`?" if near else f"it has {', '.join(known)}"
    raise BadJob(f"[model] {library} has no weights `{name}` for `{section.model}`; {there}")


def path_of(section: Published) -> Path:
    """Return the file of the weights on this machine; fetched before, or put there by hand. Raises InputMissing if it is not there."""
    weights = find(section)
    if section.sha256 is not None and (own := local_path(_checked_url(weights, section.sha256), Path())).is_file():
        return own
    for path in weights.places:
        if path.is_file():
            return path
    places = " or ".join(map(str, weights.places))
    if weights.repository:
        get = f"`hf download {weights.repository} {weights.files[0]}` puts it there"
    else:
        get = f"put {weights.url} there"
    raise InputMissing(
        f"the weights {weights.label} are not on this machine: there is no {places}; {get}; with `sha256` the run fetches it"
    )


def missing_url(section: Network) -> str | None:
    """Return the URL that a run will fetch the network's weights from; None if it fetches nothing."""
    if not isinstance(section, Published) or section.sha256 is None or not section.starts_published:
        return None
    try:
        path_of(section)
    except InputMissing:
        return _checked_url(find(section), section.sha256)
    return None


def locate(section: Published) -> Path:
    """Return the file of the weights, fetched if `sha256` allows it. Raises InputMissing if it is not there or not that file."""
    if url := missing_url(section):
        fetch_url(url, TransferLines())
    path = path_of(section)
    if section.sha256 is not None:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != section.sha256.lower():
            raise InputMissing(f"{path}: its SHA-256 is {digest}, not the `sha256` of [model]")
    return path


def _checked_url(weights: Weights, digest: str) -> str:
    return f"{weights.source}#sha256={digest.lower()}"


def _hub_cache() -> Path:
    if own := os.environ.get("HF_HUB_CACHE"):
        return Path(own)
    home = os.environ.get("HF_HOME")
    return (Path(home) if home else _users_cache() / "huggingface") / "hub"


def _torch_cache() -> Path:
    home = os.environ.get("TORCH_HOME")
    return (Path(home) if home else _users_cache() / "torch") / "hub" / "checkpoints"


def _users_cache() -> Path:
    users = os.environ.get("XDG_CACHE_HOME")
    return Path(users) if users else Path.home() / ".cache"


def _catalog(section: Published) -> tuple[str, dict[str, Weights], str]:
    """Return the package, the weights of the section's network by name, and the name of the default."""
    if isinstance(section, Timm):
        return "timm", *_of_timm(section.model)
    return "torchvision", *_of_torchvision(section.model)


def _sources(package: str) -> Iterator[str]:
    """Yield the sources of a package's networks."""
    spec = find_spec(package)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(Path(folder, "models").glob("*.py")):
            yield path.read_text(encoding="utf-8")


def _of_torchvision(model: str) -> tuple[dict[str, Weights], str]:
    """Read the members of the `WeightsEnum` that annotates a network's argument `weights`."""
    for text in _sources("torchvision"):
        if not re.search(rf'^def {model}\(|name="{model}"', text, re.MULTILINE):
            continue
        tree = ast.parse(text)
        classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        for node in tree.body:
            if not isinstance(node, ast.FunctionDef) or (node.name != model and f"'{model}'" not in str(_decorators(node))):
                continue
            taken = [one.annotation for one in (*node.args.kwonlyargs, *node.args.args) if one.arg == "weights"]
            names = [one.id for some in taken if some for one in ast.walk(some) if isinstance(one, ast.Name)]
            for table in (classes[name] for name in names if name in classes):
                return _members(model, table)
    return {}, ""


def _decorators(node: ast.FunctionDef) -> list[str]:
    return [ast.dump(one) for one in node.decorator_list]


def _members(model: str, table: ast.ClassDef) -> tuple[dict[str, Weights], str]:
    found, default = {}, ""
    for line in table.body:
        if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
            name, value = line.targets[0].id, line.value
            if isinstance(value, ast.Call):  # `Weights(url=..., ...)`
                found[name] = Weights(f"{name} of torchvision's {model}", str(_keywords(value).get("url", "")))
            elif isinstance(value, ast.Name):
                default = value.id
    return found, default


def _of_timm(model: str) -> tuple[dict[str, Weights], str]:
    """Read a network's entries in the tables `{"NAME.TAG": _cfg(...), ...}`.

    The default is the entry without a tag, or whose tag ends in `*`, else the first with weights.
    """
    found: dict[str, Weights] = {}
    default = None
    for text in _sources("timm"):
        if not re.search(rf"""["']{re.escape(model)}(\.[^"']*)?["']\s*:""", text):
            continue
        tables = [one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.Dict)]
        for key, value in (pair for table in tables for pair in zip(table.keys, table.values, strict=True)):
            name, _, tag = str(key.value).partition(".") if isinstance(key, ast.Constant) else ("", "", "")
            settings = _keywords(value) if name == model else {}
            url, repository = str(settings.get("url") or ""), str(settings.get("hf_hub_id") or "")
            if not url and not repository:
                continue
            full, tag, preferred = f"{model}.{tag}".rstrip(".*"), tag.rstrip("*"), not tag or tag.endswith("*")
            own = settings.get("hf_hub_filename")
            repository = repository + full if repository.endswith("/") else repository
            found[tag] = Weights(f"`{full}` of timm", url, repository, (str(own),) if own else HUB_FILES)
            default = tag if default is None or preferred else default
    return found, default or ""


def _keywords(settings: ast.expr) -> dict[str, Any]:
    """Return the constants of a dict, or of a call by their names; the call's first positional argument is `url`."""
    given: dict[str, ast.expr] = {}
    if isinstance(settings, ast.Call):
        given = {"url": settings.args[0]} if settings.args else {}
        given |= {one.arg: one.value for one in settings.keywords if one.arg}
    elif isinstance(settings, ast.Dict):
        given = {
            str(key.value): value
            for key, value in zip(settings.keys, settings.values, strict=True)
            if isinstance(key, ast.Constant)
        }
    return {name: value.value for name, value in given.items() if isinstance(value, ast.Constant)}
