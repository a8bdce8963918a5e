"""The pictures of docs/concepts.md. Partitions come from the code that cuts them, the paths of replicas from a computed example."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

from generate.svg import Drawing

from partrain.data.partition import windows

FOLDER = Path(__file__).parents[1] / "pictures"
WIDTH = 760


def one_round() -> str:
    """Draw two rounds of two workers, the second of which is slower."""
    drawing = Drawing(WIDTH, 250, "Two rounds of two workers: local iterations, waiting, mixing")
    left, lane, lasts = 110.0, (62.0, 112.0), (20.0, 25.0)
    for row, y in enumerate(lane):
        drawing.words(20, y + 20, f"worker {row}", f"w{row}", bold=True)
    start = left
    for number in (1, 2):
        ends = []
        for row, (y, width) in enumerate(zip(lane, lasts, strict=True)):
            for iteration in range(10):
                drawing.box(start + iteration * width, y, width - 3, 30, f"w{row}")
            ends.append(start + 10 * width)
        meet = max(ends)
        drawing.box(ends[0], lane[0], meet - ends[0] - 3, 30, "wait")
        drawing.box(meet, lane[0], 22, lane[1] - lane[0] + 30, "mix")
        drawing.words(start, 46, f"round {number}", bold=True)
        drawing.line([(start, 160), (start, 166), (meet - 3, 166), (meet - 3, 160)], "line")
        drawing.words((start + meet) / 2, 184, "10 local iterations of each worker", "quiet", anchor="middle")
        drawing.words(meet + 11, 208, "mix" if number == 2 else "mix: x = mean of the replicas", "ink", anchor="middle")
        drawing.line([(meet + 11, 146), (meet + 11, 194)], "line")
        start = meet + 34
    drawing.box(20, 222, 14, 14, "wait")
    drawing.words(40, 234, "waiting for the slower worker", "quiet", 13)
    drawing.box(270, 222, 14, 14, "w0")
    drawing.words(290, 234, "one iteration: an optimizer step on one batch", "quiet", 13)
    return drawing.render()


def partitions() -> str:
    """Draw the windows of four workers without and with overlap, and those of two CPU workers and a GPU."""
    drawing = Drawing(WIDTH, 400, "Partitions: windows over the shuffled training items")
    drawing.words(20, 32, "Training items in their shuffled order, from 0 to n", bold=True)
    y = 60.0
    for text, n, sizes, overlap in (
        ("4 workers, overlap = 0", 60, [None] * 4, 0.0),
        ("4 workers, overlap = 0.25", 60, [None] * 4, 0.25),
        ("cpu, cpu and cuda:0 with partition_size = 4500, 4500, 46000", 55_000, [4500, 4500, 46_000], 0.0),
    ):
        y = _strip(drawing, y, text, n, windows(n, sizes, overlap))
    drawing.box(20, 376, 14, 14, "both")
    drawing.words(40, 388, "items that two neighbours have", "quiet", 13)
    return drawing.render()


def _strip(drawing: Drawing, y: float, text: str, n: int, cut: Sequence[range]) -> float:
    """Draw the windows over n items; return the place below."""
    left, scale = 20.0, (WIDTH - 40) / n
    drawing.words(left, y, text, "ink")
    drawing.box(left, y + 8, n * scale, 6, "wait")
    for row, window in enumerate(cut):
        top = y + 20 + row % 2 * 22
        drawing.box(left + window.start * scale, top, max(2.0, len(window) * scale - 1), 18, f"w{row}", round_=1)
        if len(window) * scale > 60:
            label = f"worker {row}: {window.start:,} to {window.stop - 1:,}"
            drawing.words(left + window.start * scale + 6, top + 13, label, "card", 12)
    for one, other in pairwise(cut):
        if one.stop > other.start:
            drawing.box(left + other.start * scale, y + 8, (one.stop - other.start) * scale, 6, "both", round_=1)
    return y + 104


def item_iterations() -> str:
    """Draw the counts of one round of jobs/mnist.toml."""
    drawing = Drawing(WIDTH, 270, "Item-iterations: iterations times batch size, summed over workers")
    drawing.words(20, 32, "One round of jobs/mnist.toml", bold=True)
    for row in range(2):
        y = 58.0 + 62 * row
        drawing.words(20, y + 20, f"worker {row}", f"w{row}", bold=True)
        for iteration in range(10):
            drawing.box(110 + iteration * 38, y, 34, 32, f"w{row}")
            drawing.words(127 + iteration * 38, y + 21, "64", "card", 13, anchor="middle")
        drawing.words(502, y + 21, "10 x 64 = 640 item-iterations", "ink")
    drawing.line([(502, 168), (738, 168)], "line")
    drawing.words(502, 190, "1,280 item-iterations in all", bold=True)
    drawing.words(110, 190, "an iteration: a batch of 64 items, one optimizer step", "quiet", 13)
    drawing.words(
        20,
        226,
        "55,000 training items, 27,500 in each partition. A pass is a partition once: 27,500 / 640 = 43 rounds.",
        "ink",
        13,
    )
    drawing.words(20, 248, "An item that is seen again counts again. Held-out and test items count for nothing.", "quiet", 13)
    return drawing.render()


def mixed_network() -> str:
    """Draw rounds of averaging on a bowl: each worker goes towards the optimum of its own items, the mean towards that of all."""
    drawing = Drawing(WIDTH, 380, "The mixed network: replicas leave it and are averaged again")
    drawing.words(20, 32, "Parameters of a network with two weights, seen from above", bold=True)
    optima = ((0.62, 1.0), (1.0, 0.5))
    best = (sum(x for x, _ in optima) / 2, sum(y for _, y in optima) / 2)
    center = (0.0, 0.0)

    def at(point: tuple[float, float]) -> tuple[float, float]:
        return 50 + point[0] * 470, 352 - point[1] * 285

    for size in (1, 2, 3):
        drawing.ellipse(*at(best), 55 * size, 34 * size)
    for _ in range(4):
        ends = []
        for row, optimum in enumerate(optima):
            path = [center]
            for _ in range(5):  # local steps, each 8 % of the way to the optimum of this worker's items
                x, y = path[-1]
                path.append((x + 0.08 * (optimum[0] - x), y + 0.08 * (optimum[1] - y)))
            drawing.line([at(point) for point in path], f"w{row}", 2.5)
            ends.append(path[-1])
        mean = (sum(x for x, _ in ends) / 2, sum(y for _, y in ends) / 2)
        for end in ends:
            drawing.line([at(end), at(mean)], "line", 1, dash="3 3")
        drawing.dot(*at(center), 5, "mix")
        center = mean
    drawing.dot(*at(center), 5, "mix")
    for row, optimum in enumerate(optima):
        x, y = at(optimum)
        drawing.dot(x, y, 4, f"w{row}")
        drawing.words(x + 10, y + 5, f"best for the items of worker {row}", f"w{row}", 13)
    x, y = at(best)
    drawing.dot(x, y, 4, "line")
    drawing.words(x + 10, y + 5, "best for all items", "quiet", 13)
    drawing.dot(420, 318, 5, "mix")
    drawing.words(434, 323, "mixed network after a round: judged and saved", "ink", 13)
    drawing.line([(412, 340), (428, 340)], "line", 1, dash="3 3")
    drawing.words(434, 345, "averaging", "quiet", 13)
    drawing.line([(412, 362), (428, 362)], "w0", 2.5)
    drawing.words(434, 367, "local iterations of one worker", "quiet", 13)
    return drawing.render()


FILES: dict[Path, Callable[[], str]] = {
    FOLDER / "round.svg": one_round,
    FOLDER / "partitions.svg": partitions,
    FOLDER / "item-iterations.svg": item_iterations,
    FOLDER / "mixed-network.svg": mixed_network,
}
