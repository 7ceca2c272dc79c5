"""Files that are no LMDB files, or no longer: one clear error each, whatever they hold."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

import pytest
import slow_parser
from made import environment, scanned
from slow_parser import with_number
from writer import Writer

from dltune.base.errors import UsageError
from dltune.systems.lmdb.format.index import Index
from dltune.systems.lmdb.format.lmdb_binding import verify

# the bounded part of the normal suite; the documentation tells how to run 100,000
CASES = int(os.environ.get("DLTUNE_FUZZ_CASES", "3000"))


def refused(path: Path, *told: str) -> None:
    """Both readers say so, with the file's name."""
    for read in (Index.open, verify):
        with pytest.raises(UsageError) as error:
            read(path)
        text = f"{error.value} {error.value.remedy}"
        assert path.name in text
        for part in told:
            assert part in text, text


def found_damaged(path: Path, data: bytes, told: str) -> None:
    """The index is refused, and `verify` finds it too."""
    path.write_bytes(data)
    with pytest.raises(UsageError, match=told):
        Index.open(path)
    assert not sound(path)


def sound(path: Path) -> bool:
    """Whether `verify` finds no fault; damaged meta pages are told as an error, with the name."""
    try:
        return not verify(path).faults
    except UsageError as error:
        return path.name not in str(error)


def small(version: int) -> bytes:
    """A tree of two levels with records of every kind of size."""
    return Writer(version, 1024).file([(b"%03d" % i, bytes(i * 40 % 3000)) for i in range(120)])


def meta_of(data: bytes) -> int:
    return slow_parser.File(data).meta


def root_of(data: bytes) -> int:
    return slow_parser.File(data).u(8, meta_of(data) + 72 + 40)


def test_what_is_no_lmdb_file(tmp_path: Path) -> None:
    path = tmp_path / "data"
    refused(path, "No such file")
    refused(tmp_path, "is a folder without data.mdb")
    os.mkfifo(path)
    refused(path, "is not a regular file")
    path.unlink()
    path.write_bytes(b"")
    refused(path, "is empty")
    for data in (b"x", b"no database" * 1000, bytes(100_000)):
        path.write_bytes(data)
        refused(path, "no magic number", "name a complete LMDB data file")
    link = tmp_path / "loop"
    link.symlink_to(link)
    refused(link, "cannot read")
    refused(tmp_path / ("n" * 300), "File name too long")


def test_other_machines(tmp_path: Path) -> None:
    path = tmp_path / "other.mdb"
    magic = 0xBEEFC0DE
    for order, at, version, told in (
        ("<", 12, 1, "32-bit"),
        ("<", 16, 3, "32-bit"),
        (">", 12, 1, "big-endian"),
        (">", 16, 1, "big-endian"),
        (">", 24, 3, "big-endian"),
        ("<", 16, 2, "data version 2"),
        ("<", 24, 999, "data version 999"),
        ("<", 24, 1, "data version 1 with 24-byte"),
    ):
        data = bytes(at) + struct.pack(f"{order}II", magic, version)
        path.write_bytes(data + bytes(8192 - len(data)))
        refused(path, told)


def test_pages_that_only_their_program_reads(tmp_path: Path) -> None:
    data, path = small(3), tmp_path / "own.mdb"
    path.write_bytes(with_number(data, 24 + 24 + 4, 2, 0x2000))
    refused(path, "is encrypted by the program that wrote it")
    path.write_bytes(with_number(data, 1022, 2, 32))
    refused(path, "has page checksums")


@pytest.mark.parametrize("version", [1, 3])
def test_files_cut_off_anywhere(tmp_path: Path, version: int) -> None:
    data = small(version)
    path = tmp_path / "cut.mdb"
    for length in [*range(0, 2200, 41), *range(2200, len(data), 997), len(data) - 1]:
        if length:
            found_damaged(path, data[:length], "damaged|no magic number")


@pytest.mark.parametrize("version", [1, 3])
def test_trees_that_cannot_be(tmp_path: Path, version: int) -> None:
    data, path = small(version), tmp_path / "bad.mdb"
    meta, root = meta_of(data), root_of(data)
    file = slow_parser.File(data)
    nodes = file.nodes(root * file.page_size)

    def child(node: int, page: int) -> bytes:
        return with_number(data, node, 6, page)

    found_damaged(path, child(nodes[0], root), "used in two places")  # a cycle
    found_damaged(path, child(nodes[1], file.u(6, nodes[0])), "used in two places")
    found_damaged(path, child(nodes[0], 2**48 - 1), "outside the database")
    found_damaged(path, child(nodes[0], 1), "outside the database")
    found_damaged(path, with_number(data, meta + 72 + 40, 8, 2**60), "outside the database")
    found_damaged(path, with_number(data, meta + 72 + 6, 2, 33), "33 levels deep")
    found_damaged(path, with_number(data, meta + 72 + 6, 2, 1), "not a leaf page")
    found_damaged(path, with_number(data, meta + 72 + 6, 2, 3), "not a branch page")
    found_damaged(path, with_number(data, meta + 72 + 32, 8, 2**62), "records where its header")
    found_damaged(path, with_number(data, meta + 72 + 40, 8, 2**64 - 1), "without a root")
    found_damaged(path, with_number(data, meta + 120, 8, 2**63), "as the last page")
    found_damaged(path, with_number(data, meta + 120, 8, root - 1), "outside the database")
    # a last page far beyond the file is not believed in memory
    path.write_bytes(with_number(data, meta + 120, 8, 2**45))
    assert scanned(path) == slow_parser.parse(data)


@pytest.mark.parametrize("version", [1, 3])
def test_records_that_lie_elsewhere(tmp_path: Path, version: int) -> None:
    large = [(b"%03d" % i, bytes(600 + i * 40)) for i in range(80)]
    data, path = Writer(version, 1024).file(large), tmp_path / "bad.mdb"
    file = slow_parser.File(data)
    leaf = file.u(6, file.nodes(root_of(data) * file.page_size)[0]) * file.page_size
    big = [node for node in file.nodes(leaf) if file.u(2, node + 4) == 1]
    reference = [node + 8 + (3 if version == 1 else 4) for node in big]
    first = file.u(8, reference[0])
    found_damaged(path, with_number(data, reference[1], 8, first), "used in two places")
    found_damaged(path, with_number(data, reference[0], 8, 2**63), "outside the database")
    found_damaged(path, with_number(data, reference[0], 8, leaf // file.page_size), "two places")
    found_damaged(path, with_number(data, big[0], 4, 2**32 - 1), "outside|larger than its overflow")
    found_damaged(path, with_number(data, big[0] + 4, 2, 0), "is outside the area for nodes")
    found_damaged(path, with_number(data, big[0] + 4, 2, 4), "is outside the area|impossible flags")
    found_damaged(path, with_number(data, big[0] + 6, 2, 0), "is outside the area")
    found_damaged(path, with_number(data, leaf + file.header, 2, 1), "is outside the area")


def test_a_sparse_file_that_claims_everything(tmp_path: Path) -> None:
    data = small(1)
    path = tmp_path / "sparse.mdb"
    path.write_bytes(with_number(data, meta_of(data) + 120, 8, 2**33))
    os.truncate(path, 2**43 + 2**20)
    assert scanned(path) == slow_parser.parse(data)
    assert verify(path).lost > 2**32


def mixed(folder: Path, version: int) -> Path:
    """Everything LMDB has, on few pages: free pages, overflow, duplicates of every kind."""
    with environment(folder, version) as env:
        dup = env.open_db(b"dup", dupsort=True)
        fixed = env.open_db(b"fixed", dupsort=True, dupfixed=True)
        for turn in range(3):
            with env.begin(write=True) as txn:
                for i in range(60):
                    txn.put(b"%04d" % (i * 7), bytes([turn + 1]) * (i * 97 % 9000))
                for i in range(400):
                    txn.put(b"many" if i % 3 else b"few%d" % (i % 60), b"%d" % i * 5, db=dup)
                    txn.put(b"many" if i % 3 else b"few", i.to_bytes(8, "big"), db=fixed)
        with env.begin(write=True) as txn:
            for i in range(0, 60, 4):
                txn.delete(b"%04d" % (i * 7))
    return folder / "data.mdb"


@pytest.mark.parametrize("version", [1, 3])
def test_changed_bits_in_header_fields(tmp_path: Path, version: int) -> None:
    """A changed bit is refused, or it changes no record's place, or it hides the last commit.

    With three exceptions that the format leaves open: the size of a record on overflow pages is
    told in one place only; nodes are padded to an even size, so that a size may be one byte more;
    and one bit tells a named database's header from a record of 48 bytes.
    """
    path = mixed(tmp_path, version)
    data = path.read_bytes()
    right = slow_parser.parse(data)
    older = slow_parser.parse(with_number(data, meta_of(data) + 128, 8, 0))
    rng = random.Random(20)
    places = [at for field in slow_parser.headers(data) for at in field]
    refused_count = 0
    with open(path, "r+b", buffering=0) as file:
        for _ in range(CASES):
            at, bit = rng.choice(places), 1 << rng.randrange(8)
            os.pwrite(file.fileno(), bytes([data[at] ^ bit]), at)
            try:
                found = scanned(path)
            except UsageError:
                refused_count += 1
            else:
                assert found in (right, older) or _left_open(found, right), (at, bit)
            sound(path)
            os.pwrite(file.fileno(), data[at : at + 1], at)
    assert scanned(path) == right
    assert refused_count > CASES // 3


def _left_open(found: dict, right: dict) -> bool:
    """Whether all that differs is what the format leaves open."""
    if gone := set(right) - set(found):
        return any(
            key.removesuffix(b"\0") in gone and size == 48 for key, _, size in found[None]
        ) and len(found[None]) == len(right[None]) + len(gone)
    for name in right:
        for (key, at, size), (key_, at_, size_) in zip(found[name], right[name], strict=True):
            large = (key, at) == (key_, at_) and size_ > 1000
            padding = abs(len(key) - len(key_)) + abs(size - size_) <= 1 and abs(at - at_) <= 1
            if not (large or padding):
                return False
    return True


@pytest.mark.parametrize("version", [1, 3])
def test_random_damage(tmp_path: Path, version: int) -> None:
    """Bytes, words and whole stretches anywhere: an error, or what a slow parser makes of it."""
    path = mixed(tmp_path, version)
    data = path.read_bytes()
    rng = random.Random(21)
    for _ in range(CASES // 10):
        hurt = bytearray(data)
        for _ in range(rng.choice([1, 1, 2, 8])):
            at, length = rng.randrange(len(data)), rng.choice([1, 2, 8, 100, 4096])
            there = hurt[at : at + length]
            source = rng.randrange(len(data))
            copied = data[source : source + len(there)].ljust(len(there), b"\0")
            noise = rng.randbytes(len(there))
            hurt[at : at + length] = rng.choice([bytes(len(there)), noise, copied])
        path.write_bytes(hurt[: rng.choice([len(hurt)] * 9 + [rng.randrange(len(hurt))])])
        try:
            found = scanned(path)
        except UsageError:
            found = None
        if found is not None:
            assert found == slow_parser.parse(path.read_bytes())
        if sound(path):
            assert found is not None


def test_a_file_that_vanishes_or_shrinks(tmp_path: Path) -> None:
    path = mixed(tmp_path, 1)
    index = Index.open(path)
    size = path.stat().st_size

    def shrink(done: int, every: int) -> None:
        os.truncate(path, 3 * 4096)

    data = path.read_bytes()
    (tmp_path / f"{path.name}.dltune-index").unlink()
    with pytest.raises(UsageError, match=r"data\.mdb"):
        Index.open(path, tell=shrink)
    assert path.stat().st_size < size
    path.write_bytes(data)
    path.unlink()
    assert not index.holds()
    with pytest.raises(UsageError, match="No such file"):
        index.stale()
