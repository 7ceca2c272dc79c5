"""Where documents are written."""

from __future__ import annotations

import errno
import gzip
import os
import threading
from pathlib import Path

import msgspec
import pytest
import synthetic

from dltune.base import documents
from dltune.base.errors import UsageError
from dltune.schemas import profile


def test_what_is_no_plain_file_is_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/null")):
        with (
            pytest.raises(UsageError, match="is not a regular file"),
            documents.claim(path, overwrite=True),
        ):
            pass
    assert pipe.is_fifo()


def test_a_name_that_no_file_can_have(tmp_path: Path) -> None:
    for path in (tmp_path / ("x" * 300), tmp_path / ("x" * 300) / "profile.json"):
        with (
            pytest.raises(UsageError, match="File name too long"),
            documents.claim(path, overwrite=True),
        ):
            pass


def test_lists_within_lists_without_end(tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    path.write_text('{"schema": "dltune.profile/1", "ops": ' + "[" * 100_000)
    with pytest.raises(UsageError, match="recursion"):
        documents.schema(path)


def test_what_unpacks_to_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "LONGEST", 1 << 16)
    path = tmp_path / "profile.json.gz"
    path.write_bytes(gzip.compress(b" " * (1 << 17)))
    with pytest.raises(UsageError, match="is larger than"):
        documents.schema(path)


def test_a_document_from_a_pipe(tmp_path: Path) -> None:
    pipe, made = tmp_path / "pipe", synthetic.network(synthetic.machine(2))
    os.mkfifo(pipe)
    data = gzip.compress(documents.encode(made))
    writer = threading.Thread(target=pipe.write_bytes, args=(data,))
    writer.start()
    assert profile.load(pipe) == made
    writer.join()


@pytest.mark.parametrize("version", ["²", "9" * 5000, "x"])
def test_a_version_that_is_no_number(tmp_path: Path, version: str) -> None:
    path = tmp_path / "profile.json"
    path.write_text(f'{{"schema": "dltune.profile/{version}"}}')
    with pytest.raises(UsageError, match="this version of dltune reads"):
        profile.load(path)


def test_an_argument_that_is_no_utf8(tmp_path: Path) -> None:
    """As names of files of old."""
    odd = msgspec.structs.replace(
        synthetic.network(synthetic.machine(2)), command=("python", "data\udcff")
    )
    path = tmp_path / "profile.json"
    with documents.claim(path, overwrite=False) as output:
        output.write(odd)
    assert profile.load(path).command == ("python", "data?")
    assert documents.digest(profile.load(path)) == documents.digest(odd)


def test_a_link_stays_one(tmp_path: Path) -> None:
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    link.symlink_to(real)
    with documents.claim(link, overwrite=False) as output:
        output.write_bytes(b"1")
        output.write_bytes(b"2")
    assert link.is_symlink()
    assert real.read_bytes() == b"2"


@pytest.mark.parametrize("overwrite", [False, True])
def test_without_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overwrite: bool
) -> None:
    """As on file systems of USB sticks and of buckets."""

    def link(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    path = tmp_path / "result.json"
    with documents.claim(path, overwrite=overwrite) as output:
        output.write_bytes(b"1")
        output.write_bytes(b"2")
    assert path.read_bytes() == b"2"
    assert [one.name for one in tmp_path.iterdir()] == ["result.json"]


def test_a_file_that_appears_meanwhile_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    with documents.claim(path, overwrite=False) as output:
        path.write_bytes(b"others")
        with pytest.raises(UsageError, match="another process has created"):
            output.write_bytes(b"1")
    assert path.read_bytes() == b"others"
    assert [one.name for one in tmp_path.iterdir()] == ["result.json"]
