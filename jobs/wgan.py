"""A Wasserstein GAN on MNIST: two networks with two losses, as one module and one task.

Arjovsky, Chintala, Bottou. Wasserstein GAN. 2017. arXiv:1701.07875
Gulrajani, Ahmed, Arjovsky, Dumoulin, Courville. Improved Training of Wasserstein GANs. 2017. arXiv:1704.00028 (the penalty)
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

import partrain

NOISE = 32


class Gan(nn.Module):
    """A generator of digits (b, 1, 28, 28) from noise (b, NOISE), and their critic, who says how real (b,) they look."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.generator = nn.Sequential(
            nn.Linear(NOISE, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 784), nn.Sigmoid()
        )
        self.critic = nn.Sequential(
            nn.Flatten(),
            nn.Linear(784, width),
            nn.LeakyReLU(0.2),
            nn.Linear(width, width),
            nn.LeakyReLU(0.2),
            nn.Linear(width, 1),
        )

    def forward(self, noise: Tensor) -> Tensor:
        return self.generator(noise).view(-1, 1, 28, 28)

    def judge(self, digits: Tensor) -> Tensor:
        return self.critic(digits).squeeze(1)


class Wgan(partrain.Task):
    """The critic learns at every iteration, the generator at every `critic_iterations`-th."""

    def __init__(self, critic_iterations: int = 5, penalty: float = 10.0) -> None:
        self.critic_iterations, self.penalty = critic_iterations, penalty

    def differentiate(
        self, module: Gan, parameters: Sequence[nn.Parameter], inputs: Tensor, targets: Tensor, iteration: int
    ) -> tuple[Tensor, Sequence[Tensor | None]]:
        fakes = module(torch.randn(len(inputs), NOISE, device=inputs.device))
        if (iteration + 1) % self.critic_iterations:
            loss = self.critic_loss(module, inputs, fakes.detach())
            learners = set(module.critic.parameters())
        else:
            loss = -module.judge(fakes).mean()
            learners = set(module.generator.parameters())
        chosen = [parameter for parameter in parameters if parameter in learners]
        gradients = dict(zip(chosen, torch.autograd.grad(loss, chosen), strict=True))
        return loss, [gradients.get(parameter) for parameter in parameters]

    def critic_loss(self, module: Gan, digits: Tensor, fakes: Tensor) -> Tensor:
        """Compute the critic's loss on digits and fakes, plus the penalty for slopes other than 1 between them."""
        share = torch.rand(len(digits), 1, 1, 1, device=digits.device)
        between = (share * digits + (1 - share) * fakes).requires_grad_()
        (slope,) = torch.autograd.grad(module.judge(between).sum(), between, create_graph=True)
        penalty = (slope.flatten(1).norm(dim=1) - 1).square().mean()
        return module.judge(fakes).mean() - module.judge(digits).mean() + self.penalty * penalty

    def score(self, module: Gan, inputs: Tensor, targets: Tensor) -> tuple[float, float]:
        """Compute the sliced Wasserstein distance between digits and an equal number of fakes, generated from fixed noise."""
        source = torch.Generator().manual_seed(0)
        fakes = module(torch.randn(len(inputs), NOISE, generator=source).to(inputs))
        slices = torch.randn(784, 128, generator=source).to(inputs)
        slices /= slices.norm(dim=0)
        (real, _), (fake, _) = ((items.flatten(1) @ slices).sort(dim=0) for items in (inputs, fakes))
        return float((real - fake).abs().mean()) * len(inputs), 0.0
