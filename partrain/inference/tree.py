"""`partrain inspect`: the content of a checkpoint, with its tensors nested as the modules are. Needs numpy only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from partrain.display.text_table import aligned

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from partrain.checkpoint import Content

Node = dict[str, Any]
"""A description of a tensor, or other nodes by name."""


def tree(content: Content) -> Node:
    """Nest all arrays except the history by `/` and by the dots of state-dict names; each leaf describes one tensor."""
    root: Node = {}
    for path, array in sorted(content.arrays.items(), key=lambda item: _sorting(item[0])):
        if path.startswith("history/"):
            continue
        node = root
        *above, name = path.replace(".", "/").split("/")
        for part in above:
            node = node.setdefault(part, {})
        node[name] = tensor(array)
    return root


def tensor(array: NDArray[Any]) -> Node:
    """Describe a tensor: type, shape, l2 norm, largest magnitude (both over the finite numbers), count of non-finite numbers."""
    numbers = array.astype(np.float64)
    finite = numbers[np.isfinite(numbers)]
    return {
        "dtype": array.dtype.name,
        "shape": list(array.shape),
        "l2": float(np.linalg.norm(finite)),
        "max": float(np.abs(finite).max(initial=0.0)),
        "nonfinite": array.size - finite.size,
    }


def render(root: Node) -> list[str]:
    """Render the tree, one line for each module and tensor, numbers in columns."""
    return aligned([("", "type", "shape", "l2", "max", ""), *_rows(root, 0)])


def render_outline(outline: Mapping[str, Any], depth: int = 0) -> list[str]:
    """Render a nested outline as indented lines."""
    lines = []
    for name, value in outline.items():
        pad = "  " * depth
        if isinstance(value, dict) and "shape" in value:
            norm = "" if value.get("norm") is None else f"  norm {value['norm']:.6g}"
            lines.append(f"{pad}{name}  {value['dtype']} {tuple(value['shape'])}{norm}")
        elif isinstance(value, dict):
            lines += [f"{pad}{name}", *render_outline(value, depth + 1)]
        else:
            lines.append(f"{pad}{name}  {value}")
    return lines


def _rows(node: Node, depth: int) -> Any:
    for name, below in node.items():
        label = "  " * depth + name
        if isinstance(below.get("dtype"), str):
            shape = "x".join(map(str, below["shape"])) or "()"
            odd = f"{below['nonfinite']} not finite" if below["nonfinite"] else ""
            yield (label, below["dtype"], shape, f"{below['l2']:.6g}", f"{below['max']:.6g}", odd)
        else:
            yield (label, "", "", "", "", "")
            yield from _rows(below, depth + 1)


def _sorting(path: str) -> list[tuple[int, str]]:
    """Return a sort key that orders numbers by value: layer 2 before layer 10."""
    return [(len(part) if part.isdigit() else 0, part) for part in path.replace(".", "/").split("/")]
