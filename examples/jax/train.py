"""JAX over several processes: `initialize()` needs no argument; an all-reduce by a sharded sum."""

import json
import os

import jax

jax.distributed.initialize()

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.experimental import multihost_utils  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

index, count = jax.process_index(), jax.process_count()
generator = np.random.default_rng(0)
x = generator.normal(size=(240, 8)).astype(np.float32)
y = (x @ np.arange(1.0, 9.0)).astype(np.float32)

mesh = Mesh(np.array(jax.devices()), ("data",))
split = NamedSharding(mesh, PartitionSpec("data"))
rows = len(x) // count
mine = slice(index * rows, (index + 1) * rows)
all_x = jax.make_array_from_process_local_data(split, x[mine], x.shape)
all_y = jax.make_array_from_process_local_data(split, y[mine], y.shape)


def loss(weights, x, y):
    return jnp.mean((x @ weights - y) ** 2)


step = jax.jit(jax.value_and_grad(loss))
weights, losses = jnp.zeros(8), []
for _ in range(60):
    value, gradient = step(weights, all_x, all_y)
    weights = weights - 0.1 * np.asarray(gradient)
    losses.append(float(value))

everyone = multihost_utils.process_allgather(weights)
assert np.allclose(everyone, np.asarray(weights)), "processes differ"
print(f"process {index} of {count}: {losses[0]:.3f} -> {losses[-1]:.6f}", flush=True)
if index == 0:
    os.makedirs("outputs", exist_ok=True)
    result = {"ranks": count, "first": losses[0], "last": losses[-1]}
    result["weights"] = np.asarray(weights).tolist()
    with open("outputs/result.json", "w") as file:
        json.dump(result, file)
jax.distributed.shutdown()
