"""scikit-learn's MLPClassifier, pass by pass. It has no linear schedule, so its learning rate is constant; its first weights are its own."""

from __future__ import annotations

import time

import numpy as np
from sklearn.neural_network import MLPClassifier
from threadpoolctl import threadpool_limits

from benchmarks.peers.common import SIZES, arguments, batches, finish, mnist


def main() -> None:
    plan = arguments()
    threadpool_limits(plan.threads)
    inputs, targets, tests, right = mnist()
    model = MLPClassifier((SIZES[1],), solver="sgd", alpha=0, batch_size=plan.batch, learning_rate_init=plan.rate,
                          momentum=plan.momentum, nesterovs_momentum=False, random_state=plan.seed)  # fmt: skip
    began = time.perf_counter()
    order = batches(plan, len(inputs)).ravel()
    for part in np.split(order, range(len(inputs), len(order), len(inputs))):
        model.partial_fit(inputs[part], targets[part], classes=np.arange(SIZES[2]))
    finish(plan, time.perf_counter() - began, model.predict(tests), right)


if __name__ == "__main__":
    main()
