"""Words of partrain and those that PyTorch users know."""

WORDS = {
    "item": "a sample: one row, image, window or text of the data set",
    "iteration": "a step: one update of a worker's network on one batch",
    "pass": "an epoch of one worker: each item of its partition once",
    "item-iteration": "a sample seen: a batch of 64 items is 64 item-iterations",
    "round": "local iterations of all workers, and the mixing after them",
    "partition": "the training items of one worker; neighbours may overlap",
    "replica": "a worker's own copy of the network, which it trains",
    "rule": "the algorithm that mixes the replicas: parameter averaging and others",
    "judge": "evaluate the mixed network on held-out items (`validation`), as a validation loop does",
    "answer": "a prediction: the output of the trained network for an item",
}
"""Ten words and their meanings."""
