"""Sync rules: the `[sync]` table. One word changes the algorithm."""

from typing import Annotated

from pydantic import Discriminator

from partrain.rules.async_ import Async
from partrain.rules.average import Average
from partrain.rules.bsp import Bsp
from partrain.rules.choco import Choco
from partrain.rules.diloco import Diloco
from partrain.rules.easgd import Easgd
from partrain.rules.fednova import Fednova
from partrain.rules.gossip import Gossip
from partrain.rules.hogwild import Hogwild
from partrain.rules.rprop import Rprop
from partrain.rules.slowmo import Slowmo
from partrain.rules.sparseloco import Sparseloco
from partrain.rules.swap import Swap
from partrain.rules.threshold import Threshold
from partrain.rules.topk import Topk

AnyRule = Annotated[
    Average
    | Async
    | Bsp
    | Choco
    | Diloco
    | Easgd
    | Fednova
    | Gossip
    | Hogwild
    | Rprop
    | Slowmo
    | Sparseloco
    | Swap
    | Threshold
    | Topk,
    Discriminator("rule"),
]
