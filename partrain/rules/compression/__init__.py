"""Messages of fewer bytes: what a rule sends of a vector, in real bytes, so that what is counted is what would go over a wire.

    kinds      compressors, as a job names them       values   numbers in fewer bits
    messages   vectors as bytes, and back             bits     whole numbers as bits

Importing this package loads neither torch nor numpy.
"""

from partrain.rules.compression.compressors import AnyCompressor, Dense, Identity, TopK
from partrain.rules.compression.quantize import Precision

__all__ = ["AnyCompressor", "Dense", "Identity", "Precision", "TopK"]
