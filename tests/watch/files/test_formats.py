"""Formats are told by what a file holds."""

from __future__ import annotations

import io
import json
import struct
import tarfile
from pathlib import Path

import lmdb
import numpy as np
import pytest

from dltune.watch.files.data_files import HEAD, crc32c, recognise


def told(path: Path, name: str | None = None) -> str | None:
    data = path.read_bytes()
    return recognise(data[:HEAD], name or path.name, len(data))


def test_numpy_arrays(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(1000))
    np.savez(tmp_path / "a.npz", np.zeros(1000))
    assert told(tmp_path / "a.npy") == "npy"
    assert told(tmp_path / "a.npz") == "npz"
    assert told(tmp_path / "a.npz", "code.zip") is None


def test_lmdb(tmp_path):
    with lmdb.open(str(tmp_path / "db")) as made, made.begin(write=True) as writing:
        writing.put(b"key", b"value")
    assert told(tmp_path / "db" / "data.mdb", "without a suffix") == "lmdb"
    assert told(tmp_path / "db" / "lock.mdb") == "other"


def test_tfrecords_have_a_checksum_of_their_length(tmp_path):
    # the published check value of CRC-32C
    assert crc32c(b"123456789") == 0xE3069283
    length = struct.pack("<Q", 100)
    crc = crc32c(length)
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    record = length + struct.pack("<I", masked) + bytes(104)
    assert recognise(record, "train-00001-of-00002", len(record)) == "tfrecord"
    damaged = length + struct.pack("<I", masked ^ 1) + bytes(104)
    assert recognise(damaged, "train", len(damaged)) == "other"


@pytest.mark.tensorflow
def test_tfrecords_of_tensorflow_itself(tmp_path):
    tensorflow = pytest.importorskip("tensorflow")
    with tensorflow.io.TFRecordWriter(str(tmp_path / "shard")) as writer:
        writer.write(b"x" * 1000)
    assert told(tmp_path / "shard") == "tfrecord"


def test_hdf5_and_tar(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "data", "w") as file:
        file["x"] = np.zeros(10)
    assert told(tmp_path / "data") == "hdf5"
    with tarfile.open(tmp_path / "shard", "w") as archive:
        archive.addfile(tarfile.TarInfo("1.jpg"), io.BytesIO())
    assert told(tmp_path / "shard") == "tar"


def test_safetensors():
    head = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    data = struct.pack("<Q", len(head)) + head + bytes(8)
    assert recognise(data, "model", len(data)) == "safetensors"
    assert recognise(data, "model", 20) == "other"


@pytest.mark.parametrize(
    ("head", "told"), [(b"ARROW1\0\0", "arrow"), (b"PAR1", "parquet"), (b"", "other")]
)
def test_by_magic(head, told):
    assert recognise(head, "x", 1000) == told


def test_programs_are_no_data():
    import sys

    assert told(Path(sys.executable)) is None
    assert recognise(b"\x6f\x0d", "module.cpython-311.pyc", 100) is None
