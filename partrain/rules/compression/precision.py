"""The precision of values in messages."""

from typing import Literal

Precision = Literal["fp32", "fp16", "bf16", "2bit"]
"""IEEE single and half precision, bfloat16, or one of four levels that the message defines."""
