"""The published weights of a network, from torchvision or timm: `python -m partrain.models.catalog PACKAGE NETWORK`.

Importing either package takes seconds and hundreds of MB, so a separate process does it. It prints JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from typing import Any

from partrain.errors import BadJob
from partrain.system.children import SAFE_PATH
from partrain.system.torchvision import import_torchvision


@cache
def weights_of(package: str, network: str) -> dict[str, Any]:
    """Ask a package for a network's weights: `{"default": NAME, "weights": {NAME: {"url", "repository", "file"}}}`.

    Both are empty if the package publishes no weights. Raises BadJob if the package cannot be imported.
    """
    child = subprocess.run(
        [sys.executable, *SAFE_PATH, "-m", "partrain.models.catalog", package, network], capture_output=True, text=True
    )
    if child.returncode:
        reason = child.stderr.strip().rpartition("\n")[2]
        raise BadJob(f"[model] the weights of {package} could not be listed: {reason}")
    listed: dict[str, Any] = json.loads(child.stdout)
    return listed


def _of_torchvision(network: str) -> dict[str, Any]:
    models = import_torchvision("torchvision.models")
    try:
        members = models.get_model_weights(network)
    except ValueError:  # it has no such network
        return {"default": "", "weights": {}}
    weights = {weight.name: {"url": weight.url, "repository": "", "file": None} for weight in members}
    return {"default": members.DEFAULT.name if weights else "", "weights": weights}


def _of_timm(network: str) -> dict[str, Any]:
    import_torchvision("torchvision")  # timm also imports it
    from timm.models import get_arch_pretrained_cfgs, get_pretrained_cfg

    configs = [config for config in get_arch_pretrained_cfgs(network).values() if config.url or config.hf_hub_id]
    weights = {
        config.tag or "": {"url": config.url or "", "repository": config.hf_hub_id or "", "file": config.hf_hub_filename}
        for config in configs
    }
    default = get_pretrained_cfg(network) if configs else None
    return {"default": (default.tag or "") if default else "", "weights": weights}


if __name__ == "__main__":
    print(json.dumps({"torchvision": _of_torchvision, "timm": _of_timm}[sys.argv[1]](sys.argv[2])))
