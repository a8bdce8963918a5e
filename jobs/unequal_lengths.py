"""The code that `unequal-lengths.toml` names: sequences of tokens of unequal length."""

import torch


def brackets(size: int, longest: int = 16) -> list[tuple[torch.Tensor, int]]:
    """Rows of opening (0) and closing (1) brackets, 2 to `longest` tokens: do more open than close?"""
    draw = torch.Generator().manual_seed(0)
    items = []
    for _ in range(size):
        length = int(torch.randint(2, longest + 1, (), generator=draw))
        tokens = torch.randint(2, (length,), generator=draw)
        items.append((tokens, int(2 * int(tokens.sum()) < length)))
    return items
