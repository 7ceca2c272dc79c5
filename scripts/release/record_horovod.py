"""Record what the simulation of ranks is calibrated with and checked against: two real ranks.

    python scripts/release/record_horovod.py gloo OUT.json.gz

Starts a small conv net under Horovod twice: without Horovod's timeline (its writer busy-waits),
and with it. Each rank goes through phases:

    rest   nothing computes: how much a background thread oversleeps on a free core
    own    steps without allreduce: computing alone, and oversleep beside it
    both   steps with allreduce: what is to be predicted

A preloaded function notes each sleep of the background thread; nothing else is touched.
"""

from __future__ import annotations

import argparse
import ctypes
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SLEEPS = r"""
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
struct Sleep { long tid; double begin, asked, woke; };
static Sleep sleeps[1 << 20];
static long count;
static double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}
#define EXPORT extern "C" __attribute__((visibility("default")))
EXPORT int nanosleep(const timespec* asked, timespec* left) {
  const double begin = now();
  const int result = syscall(SYS_nanosleep, asked, left);
  const long i = __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED);
  if (i < (1 << 20))
    sleeps[i] = {syscall(SYS_gettid), begin, asked->tv_sec + asked->tv_nsec * 1e-9, now()};
  return result;
}
EXPORT const Sleep* slept(long* n) {
  *n = __atomic_load_n(&count, __ATOMIC_RELAXED);
  return sleeps;
}
"""


class Sleep(ctypes.Structure):
    _fields_ = (
        ("tid", ctypes.c_long),
        ("begin", ctypes.c_double),
        ("asked", ctypes.c_double),
        ("woke", ctypes.c_double),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("controller", choices=("gloo", "mpi"))
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--rank", choices=("plain", "timeline"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank:
        rank(arguments.out, arguments.steps, timeline=arguments.rank == "timeline")
        return
    with tempfile.TemporaryDirectory() as folder:
        found = {
            kind: start(arguments.controller, kind, Path(folder), arguments.steps)
            for kind in ("plain", "timeline")
        }
        timeline = (Path(folder) / "timeline.json").read_bytes()
    text = json.dumps({"controller": arguments.controller, **found})
    arguments.out.write_bytes(gzip.compress(text.encode(), mtime=0))
    beside = arguments.out.with_suffix("").with_suffix(".timeline.json.gz")
    beside.write_bytes(gzip.compress(timeline, mtime=0))


def start(controller: str, kind: str, folder: Path, steps: int) -> list[Any]:
    source, library = folder / "sleeps.cc", folder / "sleeps.so"
    source.write_text(SLEEPS)
    compiler = ["c++", "-O2", "-shared", "-fPIC", "-o", str(library), str(source)]
    subprocess.run(compiler, check=True)
    own = [sys.executable, __file__, controller, str(folder / kind)]
    own += ["--steps", str(steps), "--rank", kind]
    launcher = (
        ["horovodrun", "-np", "2", "--gloo"]
        if controller == "gloo"
        else ["mpirun", "-np", "2", "--allow-run-as-root", "--oversubscribe"]
    )
    environment = {**os.environ, "DLTUNE_SLEEPS": str(library), "TF_CPP_MIN_LOG_LEVEL": "2"}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    if kind == "timeline":
        environment["HOROVOD_TIMELINE"] = "DYNAMIC"
    subprocess.run(
        [*launcher, "env", f"LD_PRELOAD={library}", *own],
        check=True,
        env=environment,
        timeout=170,
        stdout=subprocess.DEVNULL,
    )
    return [json.loads((folder / f"{kind}.{r}").read_text()) for r in (0, 1)]


def rank(out: Path, steps: int, *, timeline: bool) -> None:
    import horovod.tensorflow as hvd
    import keras
    import tensorflow as tf

    tasks = Path("/proc/self/task")
    before = {int(task.name) for task in tasks.iterdir()}
    hvd.init()
    new = {int(task.name) for task in tasks.iterdir()} - before
    native = ctypes.CDLL(os.environ["DLTUNE_SLEEPS"])
    native.slept.restype = ctypes.POINTER(Sleep)

    def cpu(tid: int) -> float:
        return int((tasks / str(tid) / "schedstat").read_text().split()[0]) / 1e9

    tf.random.set_seed(1)
    layers = keras.layers
    images = x = keras.Input((32, 32, 3))
    for block in range(8):
        y = layers.Conv2D(32, 3, padding="same")(x)
        y = layers.ReLU()(layers.BatchNormalization()(y))
        x = layers.Add()([x, y]) if block else y
        if block in (2, 5):
            x = layers.MaxPooling2D()(x)
    model = keras.Model(images, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))
    optimizer = keras.optimizers.SGD(0.01)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    variables = [variable.value for variable in model.trainable_variables]
    batch = tf.random.normal((16, 32, 32, 3))
    labels = tf.random.uniform((16,), 0, 10, tf.int32)

    def step_of(reduced: bool) -> Any:
        @tf.function
        def step() -> Any:
            with tf.GradientTape() as tape:
                loss = loss_of(labels, model(batch, training=True))
            tape = hvd.DistributedGradientTape(tape) if reduced else tape
            gradients = tape.gradient(loss, variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        return step

    own, both = step_of(False), step_of(True)
    for step in (own, both, own, both):
        step().numpy()
    phases: dict[str, Any] = {}
    slept: dict[str, list[Sleep]] = {}

    def phase(name: str, count: int, step: Any) -> None:
        hvd.allreduce(tf.zeros(1), name=f"begin_{name}").numpy()
        n = ctypes.c_long()
        native.slept(ctypes.byref(n))
        first = n.value
        used = {tid: cpu(tid) for tid in new}
        process, began, times = time.process_time(), time.time(), []
        for _ in range(count):
            at = time.time()
            step()
            times.append((at, time.time() - at))
        seconds = time.time() - began
        process = time.process_time() - process
        used = {tid: cpu(tid) - used[tid] for tid in new}
        rows = native.slept(ctypes.byref(n))
        slept[name] = [rows[i] for i in range(first, n.value) if rows[i].tid in new]
        phases[name] = {
            "seconds": seconds,
            "steps": times,
            "cpu": process,
            "threads": used,
        }

    if timeline:
        hvd.start_timeline(str(out.with_suffix(".json")), mark_cycles=True)
        time.sleep(0.2)
        small, large = tf.zeros(1), tf.zeros(1 << 20)
        for _ in range(20):
            hvd.allreduce(small, name="small").numpy()
            hvd.allreduce(large, name="large").numpy()
    else:
        phase("rest", 1, lambda: time.sleep(1.5))
        phase("own", steps, lambda: own().numpy())
    phase("both", steps, lambda: both().numpy())
    if timeline:
        hvd.stop_timeline()
        time.sleep(0.5)
    else:
        phase("own_again", steps, lambda: own().numpy())
        phase("both_again", steps, lambda: both().numpy())
    background = statistics.mode(sleep.tid for found in slept.values() for sleep in found)
    for name, found in slept.items():
        phases[name]["sleeps"] = [
            [round(1e6 * t) for t in (sleep.begin, sleep.asked, sleep.woke)]
            for sleep in found
            if sleep.tid == background and name in ("rest", "own")
        ]
    told = {"phases": phases, "background": background, "cpus": sorted(os.sched_getaffinity(0))}
    out.with_suffix(f".{hvd.rank()}").write_text(json.dumps(told))
    hvd.shutdown()


if __name__ == "__main__":
    main()
