"""A rank that trains a little and writes down what it knows of its background thread.

    horovod_clock.py FOLDER SECONDS [die]

FOLDER/rankN: the threads that hvd.init() added, with the CPUs that each may use, then, 40 times
a second, monotonic time and the CPU time of the first of them by that thread's own clock.
It ends when there is a file FOLDER/enough, after SECONDS at the latest. With `die`, rank 1
raises an exception in the midst.
"""

import contextlib
import os
import sys
import threading
import time
from pathlib import Path

import horovod.tensorflow as hvd
import tensorflow as tf

folder, seconds, *how = sys.argv[1:]


def threads():
    # one list may lack a thread, after one that ended meanwhile
    return {int(task.name) for _ in range(3) for task in Path("/proc/self/task").iterdir()}


def age(tid):
    stat = Path(f"/proc/self/task/{tid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[19]), tid


tf.config.threading.set_intra_op_parallelism_threads(2)
before = threads()
hvd.init()
added = sorted(threads() - before, key=age)
file = (Path(folder) / f"rank{hvd.rank()}").open("w", buffering=1)
may_use = ["/".join(map(str, sorted(os.sched_getaffinity(tid)))) for tid in added]
print(*(f"{tid}:{cpus}" for tid, cpus in zip(added, may_use, strict=True)), file=file)


def clock():
    # as pthread_getcpuclockid(3) makes it
    own = ~added[0] << 3 | 6
    with contextlib.suppress(OSError):  # the thread has ended
        while True:
            print(time.monotonic(), time.clock_gettime(own), file=file)
            time.sleep(0.025)


threading.Thread(target=clock, daemon=True).start()


def busy(image):
    for _ in range(20):
        image = tf.sin(image) + tf.cos(image)
    return image


images = tf.data.Dataset.from_tensors(tf.ones((64, 64))).repeat().map(busy, 2)
options = tf.data.Options()
options.threading.private_threadpool_size = 2
images = iter(images.batch(8).prefetch(2).with_options(options))
weights = [tf.random.normal((64, 64)) for _ in range(12)]


@tf.function
def step(image):
    gradients = [tf.matmul(tf.reduce_mean(image, 0), weight) for weight in weights]
    return [hvd.allreduce(g, name=f"g{i}") for i, g in enumerate(gradients)]


end = time.monotonic() + float(seconds)
number = 0
while True:
    step(next(images))
    number += 1
    if how and hvd.rank() == 1 and number == 50:
        raise ValueError("out of luck")
    # the same decision on all ranks
    enough = time.monotonic() > end or (Path(folder) / "enough").exists()
    over = tf.constant(float(enough))
    if number % 10 == 0 and hvd.allreduce(over, name="end") > 0:
        break

# whoever was watching until now finds a reading after that
told = file.tell()
deadline = time.monotonic() + 10
while file.tell() < told + 200 and time.monotonic() < deadline:
    time.sleep(0.025)
