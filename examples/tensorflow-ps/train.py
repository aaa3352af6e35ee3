"""ParameterServerStrategy: a chief coordinates; workers and servers serve until it is done."""

import json
import os

import numpy as np
import tensorflow as tf
import tf_keras

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type in ("worker", "ps"):
    # Never returns: whoever started this ends it once the chief is done.
    tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=resolver.task_type,
        task_index=resolver.task_id,
        protocol="grpc",
        start=True,
    ).join()

strategy = tf.distribute.experimental.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
generator = np.random.default_rng(0)
x = generator.normal(size=(240, 8)).astype("float32")
y = (x @ np.arange(1.0, 9.0)).astype("float32")[:, None]

with strategy.scope():
    weights = tf.Variable(tf.zeros((8, 1)))


def dataset(context=None):
    return tf.data.Dataset.from_tensor_slices((x, y)).shuffle(240, seed=1).repeat().batch(60)


@tf.function
def step(iterator):
    def one(features, target):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((features @ weights - target) ** 2)
        weights.assign_sub(0.05 * tape.gradient(loss, weights))
        return loss

    return strategy.run(one, args=next(iterator))


iterator = iter(
    coordinator.create_per_worker_dataset(
        lambda: strategy.distribute_datasets_from_function(dataset)
    )
)
values = [coordinator.schedule(step, args=(iterator,)) for _ in range(60)]
coordinator.join()
losses = [float(value.fetch()) for value in values]

with strategy.scope():
    model = tf_keras.Sequential(
        [tf_keras.layers.Dense(1, kernel_initializer="zeros", input_shape=(8,))]
    )
    model.compile(optimizer=tf_keras.optimizers.SGD(0.05), loss="mse", steps_per_execution=5)
creator = tf_keras.utils.experimental.DatasetCreator(dataset)
fitted = model.fit(creator, epochs=3, steps_per_epoch=10, verbose=0).history["loss"]

print(
    f"chief: loop {losses[0]:.3f} -> {losses[-1]:.4f}, fit {fitted[0]:.3f} -> {fitted[-1]:.4f}",
    flush=True,
)
os.makedirs("outputs", exist_ok=True)
cluster = json.loads(os.environ["TF_CONFIG"])["cluster"]
result = {"tasks": {name: len(tasks) for name, tasks in cluster.items()}}
result |= {"first": losses[0], "last": losses[-1], "fit": fitted}
with open("outputs/result.json", "w") as file:
    json.dump(result, file)
