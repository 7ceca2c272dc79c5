"""The index beside the file: used while it fits, made again when it does not; never a wrong one."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest
from made import environment, records

from dltune.systems.lmdb.format import index as index_module
from dltune.systems.lmdb.format.index import Index, beside


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "db"
    made.mkdir()
    write(made, b"one")
    return made


def write(folder: Path, value: bytes, version: int = 1) -> None:
    with environment(folder, version) as env:
        db = env.open_db(b"named")
        with env.begin(write=True) as txn:
            for i in range(100):
                txn.put(b"%03d" % i, value * (i + 1))
                txn.put(b"n%d" % i, value, db=db)


def contents(folder: Path, name: bytes | None = None) -> list[tuple[bytes, bytes]]:
    return records(Index.open(folder, name), (folder / "data.mdb").read_bytes())


def expected(value: bytes) -> list[tuple[bytes, bytes]]:
    return [(b"%03d" % i, value * (i + 1)) for i in range(100)]


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were scanned, in order."""
    scanned: list[Path] = []
    scan = index_module.scan

    def counted(data, tell):
        scanned.append(data.path)
        return scan(data, tell)

    monkeypatch.setattr(index_module, "scan", counted)
    return scanned


def test_it_is_made_once(folder: Path, scans: list[Path]) -> None:
    assert contents(folder) == contents(folder) == expected(b"one")
    assert len(contents(folder, b"named")) == 100
    assert len(Index.all(folder)) == 2
    assert scans == [folder / "data.mdb"]
    assert sorted(p.name for p in folder.iterdir()) == [
        "data.mdb",
        "data.mdb.dltune-index",
        "lock.mdb",
    ]
    assert stat.S_IMODE(beside(folder / "data.mdb").stat().st_mode) == 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_commit_makes_it_stale(folder: Path, scans: list[Path]) -> None:
    index = Index.open(folder)
    assert not index.stale()
    assert index.holds()
    txn = index.txn
    write(folder, b"two")
    assert index.stale()
    assert contents(folder) == expected(b"two")
    assert Index.open(folder).txn == txn + 1
    assert len(scans) == 2
    assert index.holds()  # its pages are still there: LMDB spares those of the last two commits
    write(folder, b"three")
    assert not index.holds()


def test_another_database_of_the_same_transaction(folder: Path, scans: list[Path]) -> None:
    """What tells them apart is not in LMDB's meta page when trees have the same shape."""
    index = Index.open(folder)
    other = folder.parent / "other"
    other.mkdir()
    write(other, b"ONE")
    for how in ("moved", "copied over"):
        if how == "moved":
            shutil.copy2(folder / "data.mdb", folder / "aside")
            (other / "data.mdb").replace(folder / "data.mdb")
            value = b"ONE"
        else:
            data = (folder / "aside").read_bytes()
            with open(folder / "data.mdb", "r+b") as file:
                file.write(data)
            old = (folder / "aside").stat()
            os.utime(folder / "data.mdb", ns=(old.st_atime_ns, old.st_mtime_ns))
            value = b"one"
        assert index.stale()
        assert contents(folder) == expected(value)
        index = Index.open(folder)
    assert len(scans) == 3


def test_a_damaged_index_is_made_again(folder: Path, scans: list[Path]) -> None:
    contents(folder)
    path = beside(folder / "data.mdb")
    whole = path.read_bytes()
    damages = [b"", whole[:10], whole[:200], whole[:-100], b"\0" * len(whole), b"x" + whole]
    for at in range(0, len(whole), 37):
        damages.append(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
    for damage in damages:
        path.write_bytes(damage)
        assert contents(folder) == expected(b"one")
        assert len(contents(folder, b"named")) == 100
    assert len(scans) > len(damages) // 2


def test_where_it_cannot_be_kept(folder: Path, tmp_path: Path, scans: list[Path]) -> None:
    path = beside(folder / "data.mdb")
    path.mkdir()
    index = Index.open(folder)
    assert index.unsaved is not None
    assert "is a folder" in index.unsaved
    assert records(index, (folder / "data.mdb").read_bytes()) == expected(b"one")
    path.rmdir()
    assert Index.open(folder).unsaved is None
    assert Index.open(folder).unsaved is None
    assert len(scans) == 2


def test_a_file_without_a_folder_of_its_own(tmp_path: Path) -> None:
    write(tmp_path, b"x")
    (tmp_path / "data.mdb").rename(tmp_path / "train.lmdb")
    index = Index.open(tmp_path / "train.lmdb")
    assert len(index) == 100
    assert (tmp_path / "train.lmdb.dltune-index").exists()
