"""Sync rules: the `[sync]` table. One word changes the algorithm."""

from typing import Annotated

from pydantic import Discriminator

from partrain.rules.average import Average
from partrain.rules.bsp import Bsp

AnyRule = Annotated[Average | Bsp, Discriminator("rule")]
