"""Every sync rule, in each of its forms, for the contract suites."""

from pydantic import TypeAdapter

from partrain.protocols import Rule
from partrain.protocols.rule_traits import JobContext
from partrain.rules import RULES, AnyRule

SPARSE = {"compressor": {"kind": "topk", "density": 0.2}}
EXACT = {"compressor": {"kind": "identity"}}

FORMS: dict[str, dict[str, object]] = {
    "average": {"rule": "average"},
    "average, post-local": {"rule": "average", "schedule": "post-local", "switch_round": 3},
    "average, qsr": {"rule": "average", "schedule": "qsr", "alpha": 0.02},
    "average, adacomm": {"rule": "average", "schedule": "adacomm", "every": 2},
    "average, ramp": {"rule": "average", "ramp_workers": 3},
    "average, clients": {"rule": "average", "clients": 0.5},
    "average, clients by items": {"rule": "average", "clients": 1, "client_sampling": "items", "weights": "equal"},
    "bsp": {"rule": "bsp"},
    "slowmo": {"rule": "slowmo", "momentum": 0.4},
    "diloco": {"rule": "diloco"},
    "diloco, streaming": {"rule": "diloco", "fragments": 2},
    "diloco, before": {"rule": "diloco", "fragments": 3, "order": "before"},
    "fednova": {"rule": "fednova"},
    "fedprox": {"rule": "fedprox"},
    "scaffold": {"rule": "scaffold"},
    "scaffold, clients": {"rule": "scaffold", "clients": 0.5},
    "feddyn": {"rule": "feddyn"},
    "feddyn, clients": {"rule": "feddyn", "clients": 0.5},
    "fedopt": {"rule": "fedopt"},
    "fedopt, yogi": {"rule": "fedopt", "server": "yogi"},
    "fedopt, adagrad": {"rule": "fedopt", "server": "adagrad"},
    "robust": {"rule": "robust"},
    "robust, krum": {"rule": "robust", "estimate": "krum", "faulty": 0, "keep": 2},
    "robust, clipped": {"rule": "robust", "estimate": "clipped"},
    "rprop": {"rule": "rprop"},
    "rprop, irprop+": {"rule": "rprop", "variant": "irprop+"},
    "swap": {"rule": "swap"},
    "easgd": {"rule": "easgd"},
    "easgd, asynchronous": {"rule": "easgd", "asynchronous": True, "visits": 3},
    "gossip": {"rule": "gossip"},
    "gossip, before": {"rule": "gossip", "order": "before"},
    "gossip, pairs": {"rule": "gossip", "style": "pairs", "topology": "complete"},
    "gossip, push-sum": {"rule": "gossip", "style": "push-sum", "probability": 0.5, "visits": 4},
    "async": {"rule": "async", "visits": 3},
    "async, inverse": {"rule": "async", "visits": 3, "staleness_weight": "inverse", "bound": 1},
    "async, soft-sync": {"rule": "async", "visits": 3, "soft_sync": 2, "parts": 3},
    "async, momentum": {"rule": "async", "visits": 3, "momentum": 0.5},
    "async, ramp": {"rule": "async", "visits": 3, "ramp_workers": 3},
    "async, compensated": {"rule": "async", "visits": 3, "compensation": 0.04},
    "hogwild": {"rule": "hogwild", "visits": 3},
    "hogwild, local": {"rule": "hogwild", "visits": 3, "local": True},
    "threshold": {"rule": "threshold", "threshold": 0.01},
    "threshold, mean": {"rule": "threshold", "threshold": 0.01, "combine": "mean", "adaptive": False},
    "topk": {"rule": "topk", **SPARSE},
    "topk, fp16": {"rule": "topk", "compressor": {"kind": "fp16"}, "error_feedback": False},
    "choco": {"rule": "choco", **SPARSE},
    "sparseloco": {"rule": "sparseloco", "density": 0.2, "chunk": 16},
}

VARIANTS: dict[str, Rule] = {
    name: TypeAdapter(AnyRule).validate_python({"iterations": 3, **form}) for name, form in FORMS.items()
}

NAMES = set(RULES)
"""The names of all rules."""

ALONE = {
    "average", "average, ramp", "bsp", "swap", "gossip", "gossip, before", "gossip, pairs", "gossip, push-sum", "hogwild", "fednova",
}  # fmt: skip
"""Forms that equal the local optimizer for one worker, to the bit (three iterations, or three visits of three)."""

MEAN = {"average", "bsp", "slowmo", "diloco", "fednova", "swap", "gossip", "gossip, before", "gossip, pairs", "topk, fp16"}
"""Forms in which a step of all keeps the mean of the steps that each worker takes alone."""

SYNCHRONOUS = {name for name, rule in VARIANTS.items() if rule.synchronous}


def findings(rule: Rule, workers: int = 2) -> list[tuple[str, str]]:
    """Check a rule for N workers: key and severity of each finding."""
    return [(str(finding.path[-1]), finding.severity) for finding in rule.check(JobContext(workers))]
