"""JAX and optax: 100 iterations are one compiled `lax.scan`."""

from __future__ import annotations

import os
import time

from benchmarks.peers.common import arguments, batches, finish, layers, mnist, rates

SCAN = 100


def main() -> None:
    plan = arguments()
    if plan.threads == 1:  # before the import, which counts the cores
        os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])
    import jax
    import jax.numpy as jnp
    import optax

    inputs, targets, tests, right = map(jnp.asarray, mnist())
    schedule = jnp.asarray(rates(plan))
    optimizer = optax.sgd(lambda count: schedule[count], momentum=plan.momentum)

    def logits(params: list[tuple[jax.Array, jax.Array]], batch: jax.Array) -> jax.Array:
        (first, first_bias), (last, last_bias) = params
        return jax.nn.relu(batch @ first + first_bias) @ last + last_bias

    def scan(state, index, inputs, targets):
        def iteration(state, index):
            params, momentum = state

            def loss(params):
                return optax.softmax_cross_entropy_with_integer_labels(logits(params, inputs[index]), targets[index]).mean()

            updates, momentum = optimizer.update(jax.grad(loss)(params), momentum)
            return (optax.apply_updates(params, updates), momentum), None

        return jax.lax.scan(iteration, state, index)[0]

    params = jax.tree.map(jnp.asarray, layers(plan.seed))
    state = params, optimizer.init(params)
    jitted, compiled = jax.jit(scan, donate_argnums=0), {}
    for length in {min(SCAN, plan.iterations), plan.iterations % SCAN} - {0}:
        index = jax.ShapeDtypeStruct((length, plan.batch), jnp.int32)
        compiled[length] = jitted.lower(state, index, inputs, targets).compile()
    began = time.perf_counter()
    order = batches(plan, len(inputs)).astype("int32")
    for first in range(0, plan.iterations, SCAN):
        index = order[first : first + SCAN]
        state = compiled[len(index)](state, index, inputs, targets)
    jax.block_until_ready(state)
    finish(plan, time.perf_counter() - began, logits(state[0], tests).argmax(1), right)


if __name__ == "__main__":
    main()
