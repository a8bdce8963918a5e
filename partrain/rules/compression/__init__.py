"""Compressed messages, in real bytes: a run counts the bytes that a wire would carry.

    compressors   as a job names them                    quantize      numbers in fewer bits
    messages      vectors as bytes, and back             bit_packing   whole numbers as bits

Importing this package loads neither torch nor numpy.
"""

from partrain.rules.compression.compressors import AnyCompressor, Dense, Identity, TopK
from partrain.rules.compression.precision import Precision

__all__ = ["AnyCompressor", "Dense", "Identity", "Precision", "TopK"]
