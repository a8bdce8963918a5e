"""Sync rules: the `[sync]` table. Its key `rule` names the algorithm."""

from typing import Annotated

from partrain.config.section import OneOf, by_key
from partrain.protocols import Rule

RULES = {
    "average": "partrain.rules.average:Average",
    "async": "partrain.rules.async_:Async",
    "bsp": "partrain.rules.bsp:Bsp",
    "choco": "partrain.rules.choco:Choco",
    "diloco": "partrain.rules.diloco:Diloco",
    "easgd": "partrain.rules.easgd:Easgd",
    "feddyn": "partrain.rules.feddyn:Feddyn",
    "fednova": "partrain.rules.fednova:Fednova",
    "fedopt": "partrain.rules.fedopt:Fedopt",
    "fedprox": "partrain.rules.fedprox:Fedprox",
    "gossip": "partrain.rules.gossip:Gossip",
    "hogwild": "partrain.rules.hogwild:Hogwild",
    "robust": "partrain.rules.robust:Robust",
    "rprop": "partrain.rules.rprop:RpropRule",
    "scaffold": "partrain.rules.scaffold:Scaffold",
    "slowmo": "partrain.rules.slowmo:Slowmo",
    "sparseloco": "partrain.rules.sparseloco:Sparseloco",
    "swap": "partrain.rules.swap:Swap",
    "threshold": "partrain.rules.threshold:Threshold",
    "topk": "partrain.rules.topk:Topk",
}

OTHER_NAMES: dict[str, tuple[str, ...]] = {
    "fedavg": ("average",),
    "fedavgm": ("diloco",),
    "fedadam": ("fedopt",),
    "fedadagrad": ("fedopt",),
    "fedyogi": ("fedopt",),
    "local-sgd": ("average",),
    "ddp": ("bsp",),
    "allreduce": ("bsp",),
}
"""Other tools' names of our rules, for the hint after an unknown name."""

AnyRule = Annotated[Rule, OneOf(RULES, by_key("rule"))]
