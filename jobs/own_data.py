"""The code that `own-data.toml` names: a data set and a network in plain torch, without imports of partrain."""

import torch
from torch import nn
from torch.utils.data import Dataset


class Rings(Dataset):
    """Points in the plane, and which of the rings around the origin each lies on."""

    def __init__(self, size: int, rings: int = 3, seed: int = 0) -> None:
        self.settings = (rings, seed + 1)
        draw = torch.Generator().manual_seed(seed)
        self.ring = torch.randint(rings, (size,), generator=draw)
        angle = 2 * torch.pi * torch.rand(size, generator=draw)
        radius = 1 + self.ring + 0.15 * torch.randn(size, generator=draw)
        self.points = torch.stack([radius * angle.cos(), radius * angle.sin()], 1)

    def __len__(self) -> int:
        return len(self.ring)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        return self.points[number], int(self.ring[number])

    def test(self) -> "Rings":
        """The test set."""
        return Rings(1000, *self.settings)


class Net(nn.Module):
    """Points (b, 2) -> logits (b, rings)."""

    def __init__(self, rings: int = 3, width: int = 32) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, rings))

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        return self.layers(points)
