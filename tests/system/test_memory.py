from __future__ import annotations

import ctypes.util
import os
import shutil
from pathlib import Path

import pytest

from dltune.system import memory


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """The only place with libraries."""
    monkeypatch.setattr(memory, "_cached", lambda: ())
    monkeypatch.setattr(memory, "_FOLDERS", ())
    return tmp_path


def test_a_library_on_the_users_path_is_found(folder):
    known = next(Path("/usr/lib").rglob("libz.so.1"), None) or Path(ctypes.util.find_library("z"))
    shutil.copy(known.resolve(), folder / "libjemalloc.so.2")
    here = {"LD_LIBRARY_PATH": f"/nowhere:{folder}"}
    assert memory.find_allocator("jemalloc", here) == folder / "libjemalloc.so.2"
    assert memory.find_allocator("tcmalloc", here) is None
    assert memory.find_allocator("jemalloc", {}) is None


@pytest.mark.parametrize("content", [b"", b"not a library", b"\x7fELF\x01\x01\x01" + bytes(57)])
def test_a_library_that_does_not_load_is_not_there(folder, content):
    (folder / "libjemalloc.so.2").write_bytes(content)
    assert memory.find_allocator("jemalloc", {"LD_LIBRARY_PATH": str(folder)}) is None


def test_an_allocator_in_the_users_preload_is_seen():
    assert memory.preloaded({"LD_PRELOAD": "/a/libx.so:/b/libtcmalloc.so.4"}) == (
        "/b/libtcmalloc.so.4"
    )
    assert memory.preloaded({"LD_PRELOAD": "/a/libx.so /malloc/liby.so"}) is None
    assert memory.preloaded({}) is None


def test_the_version_of_the_c_library_is_that_of_the_system():
    if "CS_GNU_LIBC_VERSION" in os.confstr_names:
        assert ".".join(map(str, memory.glibc() or ())) in os.confstr("CS_GNU_LIBC_VERSION")
