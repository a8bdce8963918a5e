"""The reason why a run's workers did not compute all the time, in one sentence, from the numbers of summary.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from partrain.number_format import counted
from partrain.record.round_record import time_shares

LIMITING = 0.15
"""Share of the workers' time from which the cause of waiting or mixing is named."""
OUTSIDE = 0.3
"""Share of the training time outside rounds from which judging and saving are the cause: each run judges, and 15 % are usual."""
CROWDED = 0.1
"""Share of the workers' time without a core from which it is the cause; a run's own processes cost up to half of it."""
SHORT_ROUND_S = 1e-3
"""Mean seconds of a round below which the run's own processes, which record each round, are the likely cause of crowded cores."""
TELLING_SECONDS = 2.0
"""Seconds of each worker below which its time without a core is too uncertain: the run's own start also takes cores."""
COSTLY = 0.05
"""Share of waiting from which a slow worker is worth a remedy."""
LESS_OFTEN = "mix less often ([sync] iterations or passes)"
"""Advice if workers mixed or waited much."""
ONE_EACH = 'each round is one iteration: raise [sync] iterations or passes; rule = "bsp" mixes in each iteration, rule = "average" need not'
"""The same advice for rounds of one iteration."""
LASTING = 0.5
"""Share of all waiting from which one worker is its cause: this worker computes longer in total while the others wait."""


def cause(content: Mapping[str, Any], remedy: str = "") -> str:
    """Name the first cause that kept the workers from computing: too few cores, slow workers, judging, mixing, waiting; "" without one.

    `content`: of summary.json. `remedy`: advice about slow workers.
    """
    workers = content["workers"]
    shares = shares_of(workers) if len(workers) > 1 else {}
    if not shares:
        return ""
    without_core = core_wait_share(workers) or 0.0
    if without_core >= CROWDED:
        cost = f"workers had no free core for {without_core:.0%} of their time"
        threads, cores = content.get("threads", 0), content.get("cores", 0)
        if threads > cores > 0:
            return f"{cost}: they have {counted(threads, 'thread')} for {counted(cores, 'core')}; fewer workers may be as fast"
        if (mean := content["seconds"]["train"] / max(content["rounds"], 1)) < SHORT_ROUND_S:
            return f"{cost}: a round takes {1e3 * mean:.2g} ms, and recording it also takes a core; {_less_often(content)}"
        return f"{cost}: other programs used the cores"
    if slow := [_slow(worker, workers, remedy) for worker in workers if "slow" in worker]:
        return "; ".join(slow)
    apart = _outside_rounds(content)
    if apart >= max(OUTSIDE, shares["mix"], shares["wait"]):
        return f"judging and saving took {apart:.0%} of the time: do it less often ([stop] judge_every, [checkpoint] every)"
    if max(shares["wait"], shares["mix"]) < LIMITING:
        return ""
    if shares["mix"] > shares["wait"]:
        return f"workers mixed {shares['mix']:.0%} of their time: {_less_often(content)}"
    longest = max(workers, key=lambda worker: worker["seconds"]["compute"])
    lasting = sum(longest["seconds"]["compute"] - worker["seconds"]["compute"] for worker in workers)
    waited = f"waited {shares['wait']:.0%} of their time"
    all_train = participation_of(workers) is None  # otherwise the worker drawn most often computes longest
    if all_train and lasting >= LASTING * sum(worker["seconds"]["wait"] for worker in workers):
        return f"workers {waited}, most for worker {longest['rank']}, which computes longest"
    return f"workers {waited}: each round waits for its slowest worker, which is not always the same; {_less_often(content)}"


def _outside_rounds(content: Mapping[str, Any]) -> float:
    """Return the share of the training time in which the first worker was not in a round: it judged, called the user's function, or saved.

    The others may wait for it meanwhile. 0 if it did not train all the time.
    """
    first, train = content["workers"][0], content["seconds"]["train"]
    steady = first["rank"] == 0 and participation_of(content["workers"]) is None and train > 0
    return max(0.0, 1 - sum(first["seconds"].values()) / train) if steady else 0.0


def _less_often(content: Mapping[str, Any]) -> str:
    """Return how to mix less often, by the number of iterations in a round."""
    return ONE_EACH if max(worker["iterations"] for worker in content["workers"]) <= content["rounds"] else LESS_OFTEN


def shares_of(workers: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the shares of the ACTIVITIES in the time of some workers of a summary; empty without time."""
    seconds = [worker["seconds"] for worker in workers]
    return time_shares((spent["compute"], spent["wait"], spent["sync"]) for spent in seconds)


def participation_of(workers: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the share of the rounds in which a worker of a summary trained, on average; None if no worker sat a round out."""
    sampled = any("participation" in worker for worker in workers)
    return sum(worker.get("participation", 1.0) for worker in workers) / len(workers) if sampled else None


def core_wait_share(workers: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the share of their time in which some workers of a summary found no free core; None if the share is unknown.

    It is unknown for runs that are too short.
    """
    seconds = sum(sum(worker["seconds"].values()) for worker in workers)
    waited = [worker["core_wait"] for worker in workers if "core_wait" in worker]
    return sum(waited) / seconds if waited and seconds >= TELLING_SECONDS * len(workers) else None


def _slow(worker: Mapping[str, Any], workers: Sequence[Mapping[str, Any]], remedy: str) -> str:
    """Describe a slow worker: since when, the others' waiting, and the remedy if they wait much."""
    waited = shares_of([other for other in workers if other is not worker]).get("wait", 0.0)
    factor, since = worker["slow"]["factor"], worker["slow"]["since"]
    text = f"worker {worker['rank']} takes {factor:.1f} times as long per item as the others since round {since:,}"
    return f"{text}; the others waited {waited:.0%} of their time" + (f": {remedy}" if remedy and waited >= COSTLY else "")
