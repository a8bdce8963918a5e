"""Keras on JAX: `fit` with 100 iterations per execution; whole passes, then a part of one."""

from __future__ import annotations

import os
import time

import numpy as np

from benchmarks.peers.common import SIZES, arguments, finish, layers, mnist, rates


def main() -> None:
    plan = arguments()
    os.environ["KERAS_BACKEND"] = "jax"
    import keras

    class Linear(keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step):
            return keras.ops.take(schedule, keras.ops.cast(step, "int32"))

    schedule = keras.ops.convert_to_tensor(np.append(rates(plan), 0).astype(np.float32))
    keras.utils.set_random_seed(plan.seed)
    inputs, targets, tests, right = mnist()
    whole = len(inputs) // plan.batch * plan.batch
    model = keras.Sequential([keras.Input((SIZES[0],)), keras.layers.Dense(SIZES[1], "relu"), keras.layers.Dense(SIZES[2])])
    optimizer = keras.optimizers.SGD(Linear(), momentum=plan.momentum)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, steps_per_execution=100)
    model.fit(inputs[:whole], targets[:whole], plan.batch, verbose=0)  # compiles; all numbers are set back after it
    model.set_weights([array for layer in layers(plan.seed) for array in layer])
    for variable in optimizer.variables:
        variable.assign(np.zeros(variable.shape))
    began = time.perf_counter()
    passes, rest = divmod(plan.iterations, whole // plan.batch)
    if passes:
        model.fit(inputs[:whole], targets[:whole], plan.batch, epochs=passes, verbose=0)
    if rest:
        part = np.random.default_rng(plan.seed).permutation(whole)[: rest * plan.batch]
        model.fit(inputs[part], targets[part], plan.batch, verbose=0)
    seconds = time.perf_counter() - began
    finish(plan, seconds, model.predict(tests, batch_size=1000, verbose=0).argmax(1), right)


if __name__ == "__main__":
    main()
