"""A parameter server, workers and a coordinator (ParameterServerStrategy), each a process:
`coordinator.py [WORKERS [KILLED]]`. Each worker has a closure at once; so many are killed half way.
"""

import json
import os
import socket
import subprocess
import sys

SIZE, LAYERS, STEPS = 1024, 6, 12
WORKERS, KILLED = (*map(int, sys.argv[1:]), *(1, 0)[len(sys.argv) - 1 :])


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def start_all() -> int:
    count = {"ps": 1, "worker": WORKERS, "chief": 1}
    cluster = {job: [f"127.0.0.1:{free_port()}" for _ in range(n)] for job, n in count.items()}
    tasks = [
        subprocess.Popen(
            [sys.executable, *sys.argv],
            env={
                **os.environ,
                "TF_CONFIG": json.dumps(
                    {"cluster": cluster, "task": {"type": job, "index": index}}
                ),
            },
            stdout=subprocess.PIPE if job == "chief" else None,
            text=True,
        )
        for job, addresses in cluster.items()
        for index in range(len(addresses))
    ]
    chief = tasks.pop()
    for line in chief.stdout:
        if line == "half way\n":
            for worker in tasks[len(tasks) - KILLED :]:
                worker.kill()
        else:
            print(line, end="", flush=True)
    for task in tasks:
        task.terminate()
        task.wait()
    return chief.wait()


if "TF_CONFIG" not in os.environ:
    sys.exit(start_all())

import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type != "chief":
    tf.distribute.Server(resolver.cluster_spec(), resolver.task_type, resolver.task_id).join()
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


for number in range(STEPS):
    last = [coordinator.schedule(step) for _ in range(WORKERS)][-1]
    if number == STEPS // 2:
        print("half way", flush=True)
    coordinator.join()
print("loss", float(last.fetch()).hex(), flush=True)
os._exit(0)  # the cluster's threads wait for servers that are ended next
