"""Properties of every sync rule; a new rule joins by its forms in `FORMS` of tests/support/rule_forms.py."""

from dataclasses import replace

import pytest
import torch
from support.lab import Snapshot, Trial, blobs, descend, mlp, restless, same, take
from support.rule_forms import ALONE, FORMS, MEAN, NAMES, VARIANTS
from torch.nn import functional

from partrain.errors import Diverged
from partrain.optim import AnyOptimizer, Sgd
from partrain.optim.sections import Adam, AdamW
from partrain.protocols import Rule
from partrain.training.section import Engine

OPTIMIZERS: list[AnyOptimizer] = [
    Sgd(lr=0.1, batch_size=4),
    Sgd(lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01, batch_size=4),
    Adam(name="adam", lr=0.01, batch_size=4),
    AdamW(name="adamw", lr=0.01, batch_size=4),
]
POLICIES = [
    {"optimizer_state": "average", "buffers": "average"},
    {"optimizer_state": "local", "buffers": "local"},
    {"optimizer_state": "reset", "buffers": "recalibrate"},
]

UNUSED = {"rule/versions"}
"""Only differences between versions matter."""
SELDOM = {"average, qsr": "rule/rate", "average, adacomm": "rule/rate", "rprop, irprop+": "rule/move", "hogwild": "rule/center"}
"""Arrays that matter only in circumstances of the rules' own tests: a rising rate, a rising loss; a center that is the params."""

JUDGED = ("model/1.running", "model/1.num")
"""BatchNorm's statistics of the judged network."""

every_rule = pytest.mark.parametrize("rule", VARIANTS.values(), ids=VARIANTS)
every_optimizer = pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=["plain", "nesterov", "adam", "adamw"])


def policies_in_turn(first: int) -> pytest.MarkDecorator:
    """Give each rule one of the policies in turn; the whole product is for `make soak`."""
    rows = []
    for number, name in enumerate(VARIANTS, first):
        for policy in POLICIES:
            marks = () if policy is POLICIES[number % len(POLICIES)] else pytest.mark.soak
            rows.append(pytest.param(name, policy, id=f"{name}-{policy['optimizer_state']}", marks=marks))
    return pytest.mark.parametrize(("name", "policy"), rows)


def test_all_rules_are_here() -> None:
    assert {form["rule"] for form in FORMS.values()} == NAMES


@pytest.mark.parametrize("name", [name for name, rule in VARIANTS.items() if rule.keeps_replicas_equal])
def test_a_rule_says_whether_a_worker_keeps_a_state_of_its_own(name: str) -> None:
    rule = VARIANTS[name]
    _, taken = Trial(rule).run(2)
    assert rule.keeps_worker_state == any(path.startswith("workers/0/rule/") for path in taken.arrays)


@every_rule
def test_what_all_workers_want_is_a_fixed_point(rule: Rule) -> None:
    for replicas in descend(rule, start=[3.0, -1.0], targets=[[3.0, -1.0]] * 3, rounds=3):
        assert replicas == [pytest.approx([3.0, -1.0])] * 3


@pytest.mark.parametrize("rule", [VARIANTS[name] for name in sorted(ALONE)], ids=sorted(ALONE))
@every_optimizer
def test_one_worker_is_the_local_optimizer_to_the_bit(rule: Rule, optimizer: AnyOptimizer) -> None:
    trial = Trial(rule, optimizer, mlp, partitions=[range(26)], engine=Engine(compiled=False))
    (worker,), _ = trial.run(4)

    reference = trial.worker()
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[optimizer.name]
    settings = optimizer.model_dump(include={"lr", "momentum", "nesterov", "weight_decay", "betas", "eps"})
    steps = kind(reference.module.parameters(), fused=True, **settings)
    for number in range(1, 5):
        reference.begin(number, 0)
        for inputs, targets in take(reference._feed, 3 * (rule.visits_per_worker or 1)):
            steps.zero_grad()
            functional.cross_entropy(reference.module(inputs), targets).backward()
            steps.step()
    assert torch.equal(worker.params, reference.params)


@pytest.mark.parametrize("rule", [VARIANTS[name] for name in sorted(MEAN)], ids=sorted(MEAN))
def test_one_step_of_all_keeps_the_mean_of_what_each_would_do_alone(rule: Rule) -> None:
    targets = [[1.0, 5.0], [2.0, -3.0], [6.0, 1.0]]
    one = rule.model_copy(update={"iterations": 1})
    (together,) = descend(one, start=[4.0, 4.0], targets=targets)
    alone = [descend(one, start=[4.0, 4.0], targets=[target])[0][0] for target in targets]
    for mixed, single in zip(zip(*together, strict=True), zip(*alone, strict=True), strict=True):
        assert sum(mixed) / 3 == pytest.approx(sum(single) / 3)


@policies_in_turn(0)
def test_the_same_job_gives_the_same_bits(name: str, policy: dict[str, str]) -> None:
    trial = everything(VARIANTS[name], policy)
    _, once = trial.run(3)
    _, twice = trial.run(3)
    assert same(once, twice)


@every_rule
def test_another_seed_gives_other_bits(rule: Rule) -> None:
    trial = everything(rule, {})
    assert not same(trial.run(2)[1], replace(trial, seed=1).run(2)[1])


@policies_in_turn(1)
def test_fresh_workers_go_on_from_a_snapshot_to_the_same_bits(name: str, policy: dict[str, str]) -> None:
    trial = everything(VARIANTS[name], policy)
    _, half = trial.run(2)
    _, resumed = trial.run(4, since=half)
    _, whole = trial.run(4)
    assert same(resumed, whole)
    assert resumed.progress == whole.progress


@pytest.mark.slow
@policies_in_turn(2)
def test_nothing_in_a_snapshot_is_idle(name: str, policy: dict[str, str]) -> None:
    rule = VARIANTS[name]
    trial = everything(rule, policy)
    _, half = trial.run(2)
    _, whole = trial.run(3)
    paths = needed(rule, half, policy) - {SELDOM.get(name)}
    idle = [path for path in sorted(paths) if not matters(trial, half.without(path), whole)]
    assert idle == []


def matters(trial: Trial, crippled: Snapshot, whole: Snapshot) -> bool:
    """Return whether training from a snapshot with an array zeroed ends elsewhere, or diverges."""
    try:
        return not same(trial.run(3, since=crippled)[1], whole)
    except Diverged:
        return True


def everything(rule: Rule, policy: dict[str, str]) -> Trial:
    """BatchNorm, dropout, moments, a schedule, unequal partitions, judging: all that resuming could get wrong."""
    optimizer = Adam(name="adam", lr=0.02, batch_size=4, schedule="cosine", warmup=0.2)
    return Trial(rule.model_copy(update=policy), optimizer, restless, held_out=blobs(20), horizon=150)


def needed(rule: Rule, snapshot: Snapshot, policy: dict[str, str]) -> set[str]:
    """List the arrays of a snapshot that training continues from.

    Statistics of the judged network are left out if each worker has its own, or gets new ones. Its parameters are left out if
    replicas differ, or if workers share a center.
    """
    parameters = {f"model/{name}" for name, _ in restless().named_parameters()}
    used = {path for path, array in snapshot.arrays.items() if array.any()} - UNUSED
    used -= parameters if rule.shared_vectors or not rule.keeps_replicas_equal else set()
    averaged = policy["buffers"] == "average"
    return {path for path in used if averaged or not path.startswith(JUDGED)}
