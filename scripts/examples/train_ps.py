"""Trains a model whose parameters live on servers: all tasks on this machine, with one command.

    python scripts/examples/train_ps.py --servers 1 --workers 1 --steps 100

Synthetic data, in-graph replication, synchronous steps. Each task is a process of its own with the
cluster in TF_CONFIG, as a cluster manager would start it; `--under "dltune run --plan p.json --"`
puts a command before each. The first worker runs the session, prints the time of each step, and the
others end with it. `--rate 200mbit` gives each task a network namespace of its own, which sends no
faster, `--cores 0.5` a share of the cores (both root only).
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import random
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "bench"))

from core_quotas import core_quotas
from namespaces import namespaces

CLASSES = 100


def free_ports(count: int) -> list[int]:
    """Ports that are free here, below those that the kernel gives to connections: one of these can
    be taken before a task listens on it."""
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    taken: list[socket.socket] = []
    while len(taken) < count:
        one = socket.socket()
        try:
            one.bind(("", random.randrange(low // 2, low)))
        except OSError:
            one.close()
        else:
            taken.append(one)
    ports = [one.getsockname()[1] for one in taken]
    for one in taken:
        one.close()
    return ports


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=("branching", "small"), default="branching")
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--inference", action="store_true", help="read the parameters, no update")
    parser.add_argument(
        "--only",
        choices=("computing", "transfers"),
        help="a part of the step, for its bounds: parameters stay on the worker, or nothing is "
        "computed",
    )
    parser.add_argument("--losses", help="write each step's loss to this file")
    parser.add_argument("--rate", help="of each task's network, as tc reads it [loopback]")
    parser.add_argument("--cores", type=float, help="CPU time of so many for each task [all]")
    parser.add_argument("--under", default="", help="a command to start each task with")
    return parser.parse_args()


@contextmanager
def started(settings: argparse.Namespace) -> Iterator[subprocess.Popen[bytes]]:
    """All tasks; the first worker, with the others ended when the block is left."""
    count = settings.servers + settings.workers
    with ExitStack() as stack:
        hosts, networks, shares = ["127.0.0.1"] * count, [()] * count, [()] * count
        if settings.rate:
            places = stack.enter_context(namespaces(count, settings.rate))
            hosts, networks = [p.address for p in places], [p.command for p in places]
        if settings.cores:
            shares = stack.enter_context(core_quotas(count, settings.cores))
        addresses = [f"{h}:{p}" for h, p in zip(hosts, free_ports(count), strict=True)]
        cluster = {"ps": addresses[: settings.servers], "worker": addresses[settings.servers :]}
        tasks = []
        for name, own in cluster.items():
            for index in range(len(own)):
                told = json.dumps({"cluster": cluster, "task": {"type": name, "index": index}})
                number = len(tasks)
                under = [*shares[number], *networks[number], *shlex.split(settings.under)]
                command = [*under, sys.executable, *sys.argv]
                tasks.append(subprocess.Popen(command, env={**os.environ, "TF_CONFIG": told}))
        try:
            yield tasks[settings.servers]
        finally:
            for task in tasks:
                task.terminate()
            for task in tasks:
                task.wait()


def branching(parameter: Callable, images):  # type: ignore[no-untyped-def]
    """Blocks of four branches, as in Inception: unlike in a chain of layers, the order in which
    parameters come decides which branch can go on."""
    import tensorflow as tf

    def conv(x, name: str, size: int, channels: int, stride: int = 1):  # type: ignore[no-untyped-def]
        weights = parameter(f"{name}/weights", (size, size, x.shape[-1], channels))
        bias = parameter(f"{name}/bias", (channels,))
        return tf.nn.relu(tf.nn.conv2d(x, weights, stride, "SAME") + bias)

    x = conv(images, "stem", 3, 32, 2)
    for block, width in enumerate((32, 48, 64, 96)):
        here = f"block{block}"
        one = conv(x, f"{here}/one", 1, width)
        three = conv(conv(x, f"{here}/three_in", 1, width), f"{here}/three", 3, width)
        five = conv(x, f"{here}/five_in", 1, width // 2)
        five = conv(conv(five, f"{here}/five_a", 3, width), f"{here}/five_b", 3, width)
        pooled = conv(tf.nn.max_pool2d(x, 3, 1, "SAME"), f"{here}/pooled", 1, width)
        x = tf.concat([one, three, five, pooled], 3)
        if block % 2:
            x = tf.nn.max_pool2d(x, 2, 2, "SAME")
    x = tf.reduce_mean(x, [1, 2])
    return tf.matmul(x, parameter("out", (x.shape[-1], CLASSES)))


def small(parameter: Callable, images):  # type: ignore[no-untyped-def]
    import tensorflow as tf

    x = tf.reshape(images, [images.shape[0], -1])
    for layer in range(4):
        x = tf.nn.relu(tf.matmul(x, parameter(f"layer{layer}", (x.shape[-1], 64))))
    return tf.matmul(x, parameter("out", (64, CLASSES)))


def train(settings: argparse.Namespace, cluster: dict[str, list[str]], target: str) -> None:
    import tensorflow as tf

    v1 = tf.compat.v1
    v1.set_random_seed(1)
    model, side = (branching, 64) if settings.model == "branching" else (small, 16)
    variables: dict[str, tf.Variable] = {}
    load = [0] * len(cluster["ps"])

    def parameter(mine: dict[str, tf.Variable], worker: int, name: str, shape: tuple[int, ...]):  # type: ignore[no-untyped-def]
        server = load.index(min(load))
        place = f"/job:ps/task:{server}"
        if settings.only == "computing":
            name, place = f"{name}/{worker}", f"/job:worker/task:{worker}"
        if name not in variables:
            load[server] += int(tf.TensorShape(shape).num_elements() or 0)
            with tf.device(place):
                start = v1.truncated_normal_initializer(stddev=0.05, seed=len(variables))
                variables[name] = v1.get_variable(name, shape, initializer=start)
        return mine.setdefault(name, variables[name])

    losses = []
    gradients: dict[str, list[tf.Tensor]] = {}
    for worker in range(len(cluster["worker"])):
        with tf.device(f"/job:worker/task:{worker}"), v1.name_scope(f"tower{worker}"):
            images = v1.random_normal((settings.batch, side, side, 3), seed=worker)
            labels = v1.random_uniform((settings.batch,), 0, CLASSES, tf.int32, seed=worker)
            mine: dict[str, tf.Variable] = {}
            logits = model(functools.partial(parameter, mine, worker), images)
            if settings.only == "transfers":
                sent = [tf.identity(variable) for variable in mine.values()]
                loss = tf.add_n([tf.reshape(value, [-1])[0] for value in sent])
            else:
                loss = v1.losses.sparse_softmax_cross_entropy(labels, logits)
                sent = [] if settings.inference else v1.gradients(loss, list(mine.values()))
            losses.append(loss)
            for name, gradient in zip(mine, sent, strict=False):
                gradients.setdefault(name, []).append(gradient)
    loss = tf.add_n(losses) / len(losses)
    updates = []
    for name, each in () if settings.inference else gradients.items():
        with tf.device(variables[name].device):
            updates.append(v1.assign_sub(variables[name], 0.01 * tf.add_n(each) / len(each)))
    step = tf.group(*updates)
    values = []
    with v1.Session(target) as session:
        session.run(v1.global_variables_initializer())
        for number in range(settings.steps):
            began = time.perf_counter()
            value, _ = session.run((loss, step))
            print(f"step {number} {time.perf_counter() - began:.6f} s", flush=True)
            values.append(float(value).hex())
    if settings.losses:
        Path(settings.losses).write_text("".join(f"{value}\n" for value in values))


def main() -> None:
    settings = parsed()
    if "TF_CONFIG" not in os.environ:
        # ended by whoever measures it, it leaves neither tasks nor networks behind
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        with started(settings) as first:
            sys.exit(first.wait())
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf

    tf.compat.v1.disable_eager_execution()
    told = json.loads(os.environ["TF_CONFIG"])
    task = told["task"]
    server = tf.distribute.Server(told["cluster"], task["type"], task["index"])
    if task == {"type": "worker", "index": 0}:
        train(settings, told["cluster"], server.target)
    else:
        server.join()


if __name__ == "__main__":
    main()
