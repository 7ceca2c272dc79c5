"""Functions of a library by its file, against where the loader puts them."""

from __future__ import annotations

import subprocess

from dltune.system.proc.process import mappings
from dltune.systems.ranks.horovod.watch import libraries
from dltune.systems.ranks.horovod.watch.libraries import find_horovod

# in a process of its own: this one would be taken for a rank by the tests that watch its children
LOADS = """
import ctypes, sys, time
loaded = ctypes.CDLL(sys.argv[1])
print("ready", ctypes.cast(loaded.start, ctypes.c_void_p).value, sep="\\n", flush=True)
time.sleep(600)
"""


def test_functions_are_where_the_loader_puts_them(library, started):
    image = libraries.read_image(str(library))
    loader = started(LOADS, library)
    (start,) = [symbol for symbol in image.exported if symbol.name == "start"]
    at = int(loader.stdout.readline())
    base = min(m.start for m in mappings(loader.pid) if m.path == str(library))
    assert at - base == start.start
    assert start in image.local
    assert not [s for s in image.exported if "BackgroundThreadLoop" in s.name]
    assert [s for s in image.local if "BackgroundThreadLoop" in s.name]


def test_a_stripped_library_has_its_exports_alone(library, tmp_path):
    copy = tmp_path / "stripped.so"
    subprocess.run(["strip", "-o", str(copy), str(library)], check=True)
    image = libraries.read_image(str(copy))
    assert image.local == ()
    assert image.exported == libraries.read_image(str(library)).exported


def test_another_kind_of_file_has_none(tmp_path):
    file = tmp_path / "text.so"
    file.write_text("not a library, though long enough to hold a header of that format, or so\n")
    assert libraries.read_image(str(file)) == libraries.Image((), (), ())


def test_which_library_a_process_has(library, started):
    loader = started(LOADS, library)
    found = find_horovod(loader.pid, mappings(loader.pid))
    assert found is not None
    assert (found.path, found.version) == (str(library), "0.28.1")
    assert all(any(part.start in code for code in found.code) for part in found.loop)
    assert find_horovod(loader.pid, []) is None
