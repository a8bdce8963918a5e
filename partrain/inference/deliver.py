"""An export with all its descriptions: bytes, comparison, metadata, text for readers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from partrain.inference.export import Format, export, metadata, usage
from partrain.inference.preprocessed_export import export_preprocessed, preprocessed_metadata, preprocessed_usage
from partrain.inference.preprocessing import InputType, Preprocessing, WordForm

if TYPE_CHECKING:
    from partrain.inference.network import TrainedNetwork


@dataclass(frozen=True)
class Delivery:
    """An export that was compared with the network."""

    format: Format
    output: Path
    data: bytes
    verified: dict[str, Any]
    """Items compared, largest difference, tolerance."""
    facts: dict[str, Any]
    """The metadata."""
    usage: str
    """Inputs and outputs in words."""

    @property
    def compared(self) -> str:
        """The comparison in words."""
        largest = self.verified["largest_difference"]
        same = "equal to the bit" if largest == 0 else f"largest difference {largest:.3g}"
        fewest = "; it needs at least one item, as the network's answer to an item depends on the others" * self.verified.get(
            "fewest_items", 0
        )
        return f"{self.output}: {len(self.data):,} bytes; answers to {self.verified['items']} items compared: {same}{fewest}"


def deliver(
    network: TrainedNetwork,
    file_format: Format,
    output: Path,
    *,
    with_preprocessing: bool = False,
    dtype: InputType | None = None,
    words: WordForm | None = None,
) -> Delivery:
    """Export a network, with its preprocessing on request.

    Args:
        network: The network.
        file_format: The format of the file.
        output: The path of the file, which this function does not write.
        with_preprocessing: Put the preprocessing into the graph.
        dtype: Type of raw numbers in that graph; None: as trained.
        words: Form of words in that graph; None: text in ONNX, codes in torch-export.

    Raises:
        CannotCreate: the format or the network does not allow it.
    """
    if with_preprocessing:
        recipe = Preprocessing.of(network, dtype, words)
        data, verified = export_preprocessed(recipe, file_format)
        facts, described = preprocessed_metadata(recipe, file_format), preprocessed_usage(recipe, file_format)
        return Delivery(file_format, output, data, verified, facts, described)
    data, verified = export(network, file_format)
    return Delivery(file_format, output, data, verified, metadata(network), usage(network, file_format))
