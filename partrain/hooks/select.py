"""Selection of hooks by name before the run. Nothing of a hook is imported here."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec

from partrain.errors import CannotCreate, InputMissing
from partrain.hooks import GROUP

OURS = {"tensorboard": "tensorboard", "mlflow": "mlflow", "wandb": "wandb", "prometheus": "prometheus_client"}
"""The package that each hook of partrain needs. Its extra has the name of the hook."""


def find_hooks(names: Iterable[str]) -> list[EntryPoint]:
    """Find hooks by name, each once. Raises ValueError for an unknown one, InputMissing if its package is missing."""
    names = list(dict.fromkeys(names))
    plugins = known_hooks() if names else {}
    for name in names:
        if name == "prometheus" and name not in plugins:
            raise ValueError("Prometheus fetches its numbers: give --metrics-port instead")
        if name in OURS and name not in plugins:
            raise ValueError(
                f"the installed partrain does not declare `{name}`: its code is newer than its installation; install it again"
            )
        if name not in plugins:
            raise ValueError(f"there is no hook `{name}`; known: {', '.join(sorted(plugins)) or 'none'}")
        if plugins[name].value.startswith("partrain."):
            require(name)
    return [plugins[name] for name in names]


def known_hooks() -> dict[str, EntryPoint]:
    """Return the hooks of all installed packages by name."""
    return {point.name: point for point in entry_points(group=GROUP)}


def require(name: str) -> None:
    """Raise InputMissing if the package that a hook of partrain needs is missing."""
    if find_spec(OURS[name]) is None:
        raise InputMissing(f"`{name}` needs the package {OURS[name]}, which is not installed: pip install 'partrain[{name}]'")


def open_port(host: str, port: int) -> socket.socket:
    """Open a port that listens for requests; 0 chooses a free one. Raises CannotCreate."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, OverflowError) as error:
        number = getattr(error, "errno", None) or 0
        problem = os.strerror(number) if number > 0 else str(error)  # negative: the host has no address
        raise CannotCreate(
            f"--metrics-port: {host} port {port}: {problem.lower()}; give another port, or 0 for a free one"
        ) from None
