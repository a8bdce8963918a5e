"""`partrain predict --prompt`: text that continues a prompt, drawn from a language network."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from partrain.errors import InputMissing
from partrain.inference.inputs.text import decode, encode
from partrain.inference.network import TrainedNetwork, blame_user_code
from partrain.seeds import derive


@dataclass(frozen=True)
class GeneratedText:
    """The prompt and its continuation."""

    whole: str

    @property
    def summary(self) -> str:
        return f"{len(self.whole):,} characters"

    def encode(self, suffix: str) -> bytes:
        """Encode as a file with this suffix: `.txt` or `.json`."""
        return ((json.dumps(self.document()) if suffix == ".json" else self.whole) + "\n").encode()

    def document(self) -> dict[str, Any]:
        return {"text": self.whole}

    def text(self) -> str:
        return self.whole


def generate(network: TrainedNetwork, prompt: str, tokens: int, temperature: float, seed: int) -> GeneratedText:
    """Continue the `prompt` by `tokens` tokens, each drawn from softmax(logits / temperature); with 0, always the likeliest.

    The network sees as many of the newest tokens as a training item had. Equal seeds draw equal texts.
    """
    if network.kind.targets != "tokens":
        raise InputMissing(f"a prompt is for a network trained on language, and this one is for {network.kind}; use --input")
    text = encode(network, prompt, "--prompt")
    length, draw = network.record.input[0], torch.Generator().manual_seed(derive(seed, "generate"))
    with torch.no_grad(), blame_user_code(network.loaded):
        for _ in range(tokens):
            logits = network.module(torch.tensor([text[-length:]]))[0, -1]
            text.append(_draw(logits.double(), temperature, draw))
    return GeneratedText(prompt + decode(network, text)[len(decode(network, text[:-tokens])) :])


def _draw(logits: Tensor, temperature: float, draw: torch.Generator) -> int:
    if temperature == 0:
        return int(logits.argmax())
    return int(torch.multinomial(((logits - logits.max()) / temperature).softmax(0), 1, generator=draw))
