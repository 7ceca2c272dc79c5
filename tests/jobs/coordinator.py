"""A parameter server, a worker and a coordinator (ParameterServerStrategy), each a process."""

import json
import os
import socket
import subprocess
import sys

SIZE, LAYERS, STEPS = 1024, 6, 12


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def start_all() -> int:
    cluster = {name: [f"127.0.0.1:{free_port()}"] for name in ("ps", "worker", "chief")}
    tasks = [
        subprocess.Popen(
            [sys.executable, __file__],
            env={
                **os.environ,
                "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": name, "index": 0}}),
            },
        )
        for name in cluster
    ]
    code = tasks.pop().wait()
    for task in tasks:
        task.terminate()
        task.wait()
    return code


if "TF_CONFIG" not in os.environ:
    sys.exit(start_all())

import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type != "chief":
    tf.distribute.Server(resolver.cluster_spec(), resolver.task_type, 0).join()
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    layers = [tf.Variable(tf.random.stateless_normal((SIZE, SIZE), (1, n))) for n in range(LAYERS)]


@tf.function
def step():
    with tf.GradientTape() as tape:
        x = tf.ones((2, SIZE))
        for layer in layers:
            x = tf.tanh(tf.matmul(x, layer))
        loss = tf.reduce_sum(x)
    for layer, gradient in zip(layers, tape.gradient(loss, layers), strict=True):
        layer.assign_sub(1e-3 * gradient)
    return loss


for _ in range(STEPS):
    last = coordinator.schedule(step)
    coordinator.join()
print("loss", float(last.fetch()).hex(), flush=True)
os._exit(0)  # the cluster's threads wait for servers that are ended next
