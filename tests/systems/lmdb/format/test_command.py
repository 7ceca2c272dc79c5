"""`dltune lmdb` as a person meets it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from made import environment


def dltune(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dltune", "lmdb", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with environment(tmp_path, 3) as env:
        dup = env.open_db(b"dup", dupsort=True)
        with env.begin(write=True) as txn:
            for i in range(10):
                txn.put(b"%02d" % i, b"x" * i * 1000)
                txn.put(b"\x00\\%d" % (i // 5), b"%d" % i, db=dup)
    return tmp_path


def warnings(done: subprocess.CompletedProcess[str]) -> list[str]:
    """All but progress, which is told where reading takes a second."""
    return [line for line in done.stderr.splitlines() if not line.endswith(" pages read")]


def test_index(folder: Path) -> None:
    done = dltune("index", folder)
    assert (done.returncode, warnings(done)) == (0, [])
    assert done.stdout.splitlines() == [
        f"{folder}/data.mdb, transaction 2",
        "database  records  bytes  smallest  largest",
        "(main)         10  45000         0     9000",
        "dup            10     10         1        1",
        f"index written to {folder}/data.mdb.dltune-index",
    ]
    told = json.loads(dltune("index", "--json", folder / "data.mdb").stdout)
    assert told["txn"] == 2
    assert told["unsaved"] is None
    assert [d["name"] for d in told["databases"]] == [None, "dup"]
    assert [d["duplicates"] for d in told["databases"]] == [False, True]


def test_keys(folder: Path) -> None:
    assert dltune("keys", folder).stdout.split() == [f"{i:02}" for i in range(10)]
    done = dltune("keys", "--database", "dup", folder)
    assert done.stdout == "\\x00\\x5c0\n\\x00\\x5c1\n"
    done = dltune("keys", "--database", "none", folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert "has no database 'none'" in done.stderr
    assert "choose from 'dup'" in done.stderr


def test_an_index_that_cannot_be_kept_is_told(folder: Path) -> None:
    (folder / "data.mdb.dltune-index").mkdir()
    for verb in ("index", "keys"):
        done = dltune(verb, folder)
        assert done.returncode == 0
        assert "00\n" in done.stdout or "(main)" in done.stdout
        assert "the index was not stored" in done.stderr


def test_verify(folder: Path) -> None:
    done = dltune("verify", folder)
    assert (done.returncode, warnings(done)) == (0, [])
    assert "LMDB data version 3, pages of 4096 bytes, transaction 2" in done.stdout
    assert "20 records in 2 databases" in done.stdout
    assert done.stdout.endswith("no faults found\n")
    path = folder / "data.mdb"
    data = bytearray(path.read_bytes())
    at = data.index(b"03", 8192)
    data[at : at + 2] = b"zz"
    path.write_bytes(data)
    done = dltune("verify", "--json", folder)
    assert done.returncode == 1
    assert json.loads(done.stdout)["fault_count"] == 1
    assert "has a fault" in done.stderr
    assert "Traceback" not in done.stderr


def test_wrong_use(tmp_path: Path) -> None:
    for verb in ("index", "keys", "verify"):
        done = dltune(verb, tmp_path / "none")
        assert (done.returncode, done.stdout) == (2, "")
        assert "cannot read" in done.stderr
        assert "Traceback" not in done.stderr
        assert dltune(verb).returncode == 2
