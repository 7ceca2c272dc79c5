"""An input pipeline of TensorFlow, watched by the command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from dltune.base.documents import struct_faults
from dltune.schemas import io

pytestmark = pytest.mark.tensorflow

WRITE = """
import os, sys
import tensorflow as tf
with tf.io.TFRecordWriter(sys.argv[1]) as writer:
    for _ in range(600):
        writer.write(os.urandom(1 << 10) * 50)
"""

READ = """
import os, sys, time
import tensorflow as tf
def cold():
    fd = os.open(sys.argv[1], os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
until = time.time() + 12
while time.time() < until:
    cold()
    data = tf.data.TFRecordDataset(sys.argv[1]).map(
        lambda record: tf.reduce_sum(tf.cast(tf.io.decode_raw(record, tf.uint8), tf.float32)),
        num_parallel_calls=2,
    )
    for batch in data.batch(32).prefetch(1):
        time.sleep(0.2)  # the file is open for most of the time, for a look or two a second to find
"""


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("tensorflow")
    path = tmp_path_factory.mktemp("shards") / "train-00000-of-00001"
    subprocess.run([sys.executable, "-c", WRITE, str(path)], check=True, env=quiet(), timeout=550)
    return path


def quiet() -> dict[str, str]:
    return {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}


def test_a_pipeline_that_reads_tfrecords(shard):
    done = subprocess.run(
        [
            *(sys.executable, "-m", "dltune", "io-report", "--json", "--"),
            *(sys.executable, "-c", READ, str(shard)),
        ],
        capture_output=True,
        text=True,
        env=quiet(),
        timeout=550,
    )
    assert done.returncode == 0, done.stderr
    document = msgspec.json.decode(done.stdout, type=io.Io)
    assert struct_faults("", document) == []
    assert document.watch is not None
    (file,) = [file for file in document.watch.files if file.path == str(shard)]
    assert file.format == "tfrecord"
    assert file.size == shard.stat().st_size
    assert len(document.watch.processes) >= 1
    # the pipeline has threads of its own
    assert max(len(process.threads) for process in document.watch.processes) > 4
    assert document.findings
