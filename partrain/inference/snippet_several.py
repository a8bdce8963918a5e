"""Parts of the printed program for networks of several inputs, or of sequences of unequal length."""

from __future__ import annotations

from torch import Tensor

from partrain.inference.preprocess import GraphRecipe

_UNEQUAL = '''\
def prepare(sequences):
    """Pad sequences of at most {longest} elements{each} to items."""
    inputs = np.zeros((len(sequences), {shape}), np.{type})
    for row, one in zip(inputs, sequences):
        row[: len(one)] = one
    return {{"inputs": inputs, "lengths": np.array([len(one) for one in sequences], np.int64)}}
'''


def array_text(tensor: Tensor) -> str:
    """Return a tensor as Python: its numbers, or zeros where they are many."""
    type = str(tensor.dtype).removeprefix("torch.")
    if tensor.numel() > 64:
        return f'np.zeros({tuple(tensor.shape)}, "{type}")'
    return f'np.array({tensor.tolist()!r}, "{type}")'


def arguments(recipe: GraphRecipe) -> str:
    """Return the arguments of a network in torch for `items`, as Python."""
    if not recipe.names:
        return "torch.from_numpy(items)"
    tensors = "{name: torch.from_numpy(one) for name, one in items.items()}"
    named, spread = recipe.network.record.parts[0].name, recipe.network.module._forward_pre_hooks
    if named:
        return f"**{tensors}" if spread else tensors
    return "*map(torch.from_numpy, items.values())" if spread else "tuple(map(torch.from_numpy, items.values()))"


def prepare_several(recipe: GraphRecipe) -> str:
    """Return the function that converts several inputs, or pads sequences of unequal length."""
    record, wide = recipe.network.record, str(recipe.network.dtype) == "torch.float64"
    number = "float64" if wide else "float32"
    if record.interface.unequal:
        first = record.parts[0]
        each = f", of {first.shape[1]} numbers each," if first.shape[1:] else f" (tokens below {first.vocabulary})"
        shape = ", ".join(map(str, first.shape))
        return _UNEQUAL.format(longest=first.shape[0], each=each, shape=shape, type="int64" if first.vocabulary else number)
    lines = []
    for name, part in zip(recipe.names, record.parts, strict=True):
        given = f'np.asarray(inputs["{name}"])'
        if part.dtype == "uint8":
            scaled = f"{given}.astype(np.float32) * np.float32(1 / 255)"
            lines.append(f'        "{name}": {f"({scaled}).astype(np.float64)" if wide else scaled},')
        else:
            lines.append(f'        "{name}": {given}.astype(np.{"int64" if part.dtype == "int64" else number}),')
    told = ", ".join(f"{name} {('n', *shape)}".replace("'", "") for name, (_, shape) in recipe.raw.items())
    head = f'def prepare(inputs):\n    """Convert raw inputs, a dict of {told}, to items."""\n    return {{\n'
    return head + "\n".join(lines) + "\n    }\n"


def example_of_several(recipe: GraphRecipe, first: dict[str, Tensor]) -> str:
    """Return raw inputs of one item as Python."""
    if recipe.network.record.interface.unequal:
        return f"[{array_text(first['inputs'][0, : min(3, first['inputs'].shape[1])])}]"
    return "{" + ", ".join(f'"{name}": {array_text(one)}' for name, one in first.items()) + "}"
