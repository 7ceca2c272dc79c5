"""A residual network that reads LMDB trains alike however it reads."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import lmdb
import pytest

pytestmark = pytest.mark.tensorflow

JOB = Path(__file__).parents[1] / "lmdb_resnet.py"
RECORDS, BATCH, STEPS = 80, 16, 12  # two epochs and a half; 80 is a multiple of 16, as Keras wants


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("examples") / "db"
    noise = random.Random(0)
    with (
        lmdb.open(str(folder), map_size=1 << 26, sync=False) as env,
        env.begin(write=True) as txn,
    ):
        for number in range(RECORDS):
            label = number % 10
            image = bytes(min(255, noise.randrange(200) + 5 * label) for _ in range(24 * 24 * 3))
            txn.put(b"%06d" % number, bytes([label]) + image)
    return folder


def losses(database: Path, folder: Path, by: str, *more: str) -> list[str]:
    path = folder / f"{by}-losses"
    command = [sys.executable, str(JOB), "--database", str(database), "--by", by, *more]
    command += ["--steps", str(STEPS), "--losses", str(path)]
    # on one thread, where TensorFlow repeats a training bit for bit
    environment = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=240, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr
    found = path.read_text().splitlines()
    assert len(found) == STEPS
    return found


@pytest.mark.parametrize(
    ("order", "ways"),
    [
        (("--shuffle", "3"), ("dataset", "keras", "hints")),
        pytest.param((), ("dataset", "hints"), marks=pytest.mark.proof),
    ],
)
def test_losses_are_those_of_py_lmdb_bit_for_bit(
    database: Path, tmp_path: Path, order: tuple[str, ...], ways: tuple[str, ...]
) -> None:
    plain = losses(database, tmp_path, "py-lmdb", *order)
    for by in ways:
        assert losses(database, tmp_path, by, *order) == plain


FAULTS = """
import ctypes, itertools, resource, sys
from dltune.systems.lmdb.reader.tensorflow import dataset

batches = iter(dataset(sys.argv[1], batch=8))
next(batches)  # from here on the generator op has run
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]

def buffer():
    block = libc.malloc(4 << 20)
    ctypes.memset(block, 1, 4 << 20)
    libc.free(block)

buffer()
# of this thread: those that read ahead have faults of their own
before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
for _ in range(50):
    buffer()
print(resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before)
"""


def test_buffers_of_a_step_keep_their_pages_beside_the_dataset(database: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FAULTS, str(database)], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    # TensorFlow's generator op alone: 1,024 for each buffer of 4 MiB
    assert int(done.stdout) < 5 * 1024
