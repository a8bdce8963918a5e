"""The code that `two-inputs.toml` names: items with an image and a number, and a network that takes both."""

import torch
from torch import nn


class Photos:
    """Images of random brightness, each with a threshold: is the image brighter than that?"""

    def __init__(self, size: int, seed: int = 0) -> None:
        draw = torch.Generator().manual_seed(seed)
        self.seed = seed
        self.images = torch.rand(size, 1, 8, 8, generator=draw) * torch.rand(size, 1, 1, 1, generator=draw)
        self.threshold = torch.rand(size, 1, generator=draw) / 2

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, number: int) -> tuple[dict[str, torch.Tensor], int]:
        image, threshold = self.images[number], self.threshold[number]
        return {"image": image, "threshold": threshold}, int(image.mean() > threshold)

    def test(self) -> "Photos":
        """The test set."""
        return Photos(500, self.seed + 1)


class Net(nn.Module):
    """Images (b, 1, 8, 8) and thresholds (b, 1) -> logits (b, 2)."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.of_image, self.of_threshold, self.answer = nn.Linear(64, width), nn.Linear(1, width), nn.Linear(width, 2)

    def forward(self, image: torch.Tensor, threshold: torch.Tensor) -> torch.Tensor:
        return self.answer(torch.relu(self.of_image(image.flatten(1)) + self.of_threshold(threshold)))
