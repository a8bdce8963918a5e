"""Published weights of torchvision and timm, by name: `[model] pretrained` and `weights`. partrain looks for them on this
machine.

`models.catalog` asks the two packages for the names and places of the weights.

    torchvision   `hub/checkpoints` in torch's cache ($TORCH_HOME, else `torch` in $XDG_CACHE_HOME or ~/.cache)
    timm          Hugging Face's cache ($HF_HUB_CACHE, else `hub` in $HF_HOME or ~/.cache/huggingface), then torch's

partrain fetches a missing file, into its own cache, only with `sha256`.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from partrain.config.problems import did_you_mean
from partrain.data.fetch import TransferLines, fetch_url, local_path
from partrain.errors import BadJob, InputMissing
from partrain.models.catalog import weights_of
from partrain.models.image_sections import Published, Timm
from partrain.system.caches import user_cache

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
    """URL of the file; "" if the package does not give it."""
    repository: str = ""
    """Repository on Hugging Face, `owner/name`; "" without one."""
    files: tuple[str, ...] = HUB_FILES
    """Names of the file in the repository."""

    @property
    def source(self) -> str:
        """URL to fetch the file from."""
        return f"https://huggingface.co/{self.repository}/resolve/main/{self.files[0]}" if self.repository else self.url

    @property
    def places(self) -> list[Path]:
        """Paths of the file in the caches of torch and Hugging Face, in the order of preference."""
        paths = []
        if self.repository:
            folder = _hub_cache() / f"models--{self.repository.replace('/', '--')}"
            try:
                revision = (folder / "refs" / "main").read_text().strip()
            except OSError:
                revision = "main"
            paths += [folder / "snapshots" / revision / name for name in self.files]
        if self.url:
            paths.append(_torch_cache() / PurePosixPath(urlsplit(self.url).path).name)
        return paths


def find(section: Published) -> Weights:
    """Return the weights that a `[model]` table names. Raises BadJob if the package is missing or has no weights of that name."""
    library = "timm" if isinstance(section, Timm) else "torchvision"
    if find_spec(library) is None:
        raise BadJob(f"[model] `pretrained` and `weights` need {library}, which is not installed")
    listed = weights_of(library, section.model)
    weights, name = listed["weights"], section.weights_name
    name = listed["default"] if name in (None, "DEFAULT") else str(name)  # torchvision's word
    if name in weights:
        url, repository, file = (weights[name][key] for key in ("url", "repository", "file"))
        label = f"`{section.model}.{name}` of timm" if library == "timm" else f"{name} of torchvision's {section.model}"
        return Weights(label, url, repository, (file,) if file else HUB_FILES)
    if not weights:
        raise BadJob(f"[model] {library} publishes no weights for `{section.model}`; start `from` a file, or train from scratch")
    near = did_you_mean(name, weights)
    advice = f"did you mean `{near}`?" if near else f"it has {', '.join(weights)}"
    raise BadJob(f"[model] {library} has no weights `{name}` for `{section.model}`; {advice}")


def path_of(section: Published) -> Path:
    """Return the file of the weights on this machine, fetched before or put there by hand. Raises InputMissing without it."""
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
    """Return the file of the weights; fetch it if `sha256` allows it. Raises InputMissing if the file is missing or wrong."""
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
    return (Path(home) if home else user_cache() / "huggingface") / "hub"


def _torch_cache() -> Path:
    home = os.environ.get("TORCH_HOME")
    return (Path(home) if home else user_cache() / "torch") / "hub" / "checkpoints"
