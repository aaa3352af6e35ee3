"""MultiWorkerMirroredStrategy: `model.fit` by legacy Keras, then a loop of one's own."""

import json
import os

import numpy as np
import tensorflow as tf
import tf_keras

config = json.loads(os.environ["TF_CONFIG"])
index, workers = config["task"]["index"], len(config["cluster"]["worker"])
strategy = tf.distribute.MultiWorkerMirroredStrategy()

generator = np.random.default_rng(0)
x = generator.normal(size=(240, 8)).astype("float32")
y = (x @ np.arange(1.0, 9.0)).astype("float32")[:, None]
# Every worker reads its own share of each global batch.
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(60).with_options(options)

with strategy.scope():
    model = tf_keras.Sequential(
        [tf_keras.layers.Dense(1, kernel_initializer="zeros", input_shape=(8,))]
    )
    model.compile(optimizer=tf_keras.optimizers.SGD(0.1), loss="mse")
fitted = model.fit(batches, epochs=5, verbose=0).history["loss"]
weights = model.get_weights()[0].flatten()

with strategy.scope():
    free = tf.Variable(tf.zeros((8, 1)))


@tf.function
def step(features, target):
    def one(features, target):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((features @ free - target) ** 2) / 60.0
        gradient = tape.gradient(loss, free)
        total = tf.distribute.get_replica_context().all_reduce("sum", gradient)
        free.assign_sub(0.1 * total)
        return loss

    return strategy.reduce("sum", strategy.run(one, args=(features, target)), axis=None)


losses = [
    float(step(features, target))
    for _ in range(5)
    for features, target in strategy.experimental_distribute_dataset(batches)
]
print(
    f"worker {index} of {workers}: fit {fitted[0]:.3f} -> {fitted[-1]:.4f}, "
    f"loop {losses[0]:.3f} -> {losses[-1]:.4f}"
)
# Each writes its own, so that they can be compared.
os.makedirs("outputs", exist_ok=True)
result = {"ranks": strategy.num_replicas_in_sync, "first": fitted[0], "last": fitted[-1]}
result |= {"weights": weights.tolist(), "loop": losses, "free": free.numpy().flatten().tolist()}
with open(f"outputs/result-{index}.json", "w") as file:
    json.dump(result, file)
