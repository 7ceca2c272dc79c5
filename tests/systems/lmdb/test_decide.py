"""What is planned from an io document's measurements, and what a job takes from the plan."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import lmdb
import msgspec
import pytest
import synthetic

from dltune.base.documents import struct_faults
from dltune.base.errors import UsageError
from dltune.plan.plan import load_plan, with_sections
from dltune.schemas.io import (
    Block,
    Ceiling,
    DataFile,
    Experiment,
    Io,
    Measured,
    Method,
    Pattern,
    PatternKind,
    Random,
    Storage,
    Strided,
    Watch,
)
from dltune.system import topology
from dltune.systems.lmdb import Options, ReadAhead, Reader
from dltune.systems.lmdb.decide import decide
from dltune.systems.lmdb.reader.options import AHEAD, VARIABLE, planned, write_plan
from dltune.systems.lmdb.section import IoPlan
from dltune.watch.files.storage import cached

GIB = 1 << 30


def m(median: float) -> Measured:
    return Measured(median, 0.0, 3)


def block(method: Method, size: int, rate: float) -> Block:
    return Block(method, size, m(rate), m(1), m(0.5))


def strided(readers: int, rate: float) -> Strided:
    none = m(0)
    return Strided(readers, "offsets", "direct", m(rate), none, none, m(0.5), none, 0.0, None)


def random(ahead: int, rate: float, latency: float) -> Random:
    return Random("pread", True, ahead, m(rate), m(latency), None)


def experiment(path: str = "/data/data.mdb", **changes: object) -> Io:
    found = Experiment(
        path=path,
        format="lmdb",
        size=100 * GIB,
        device="1:2",
        readers=(1, 2, 4, 8),
        records=1000,
        mean_size=100_000.0,
        window=100_000_000,
        repeats=3,
        seconds=10.0,
        cold="mincore",
        ceiling=Ceiling("direct", 1 << 20, 8, m(1e9)),
        strided=(strided(1, 5e8), strided(2, 9e8), strided(4, 9.2e8), strided(8, 6e8)),
        blocks=(
            block("pread", 1 << 20, 3e8),
            block("direct", 1 << 16, 2e8),
            block("direct", 1 << 20, 9e8),
            block("direct", 1 << 22, 9.3e8),
        ),
        shuffled=(random(0, 1e8, 1.1e-3), random(16, 5e8, 2e-4), random(64, 5.1e8, 2e-4)),
        seek=None,
        share_of_ceiling=0.1,
    )
    return of(experiment=msgspec.structs.replace(found, **changes))


def of(experiment: Experiment | None = None, watch: Watch | None = None) -> Io:
    disk = Storage("1:2", "/data", "/dev/x", "ext4", 131072, False, "none", 64, True)
    return Io("dltune.io/1", "2026", "0", "x", None, (disk,), watch, experiment, (), ())


def watched(kind: PatternKind, size: int = 100 * GIB, path: str = "/data/data.mdb") -> Io:
    source = None if kind == "unknown" else "faults"
    file = DataFile(
        path, "lmdb", size, "1:2", (), size, None, None, None, None, None, None, False,
        None, None, None, 1 << 20, (), (), Pattern(kind, source, 10, None, None, 1.0),
    )  # fmt: skip
    from dltune.schemas.io import Cost

    return of(watch=Watch(1.0, "counters", (file,), (), (), (), Cost(0.0, 1, None)))


def made(io: Io, access: str | None = None, memory: int = 16 * GIB) -> IoPlan:
    assert struct_faults("", io) == []
    machine = msgspec.structs.replace(synthetic.machine(2), memory=memory)
    return decide(io, machine, access)  # type: ignore[arg-type]


def test_the_smallest_setting_that_is_as_good() -> None:
    (file,) = made(experiment()).files
    assert file.access == "strided"
    assert file.follow == "ahead"
    assert file.ahead == 16 * 100_000
    reader = file.reader
    assert reader is not None
    assert reader.node
    assert reader.direct
    assert reader.block == 1 << 20
    assert reader.parallel == 8
    assert reader.stagger == 2  # as good as 4, and 8 at a time are worse
    assert reader.gap == 1_000_000 // 4096 * 4096  # 1 ms at 1 GB/s


def test_what_fits_into_memory_stays_in_the_page_cache() -> None:
    section = made(experiment(size=4 * GIB), "shuffled")
    (file,) = section.files
    assert file.follow == "whole"
    assert file.reader is not None
    assert not file.reader.direct
    assert file.reader.parallel == Options.parallel
    assert any("stays there for later epochs" in reason for reason in section.reasons)


def test_a_shuffled_job_cannot_be_followed() -> None:
    section = made(experiment(), "shuffled")
    assert section.files[0].follow is None
    assert any("cannot be predicted from outside" in reason for reason in section.reasons)


def test_hints_that_are_worth_nothing_are_not_planned() -> None:
    section = made(experiment(shuffled=(random(0, 5e8, 1e-4), random(16, 5e8, 1e-4))))
    assert section.files[0].ahead == 0
    assert section.files[0].follow is None


def test_a_job_gives_no_hints_where_none_are_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = database(tmp_path / "db", records=10)
    worthless = (random(0, 5e8, 1e-4), random(16, 5e8, 1e-4))
    write_plan(made(experiment(str(data), shuffled=worthless)), tmp_path / "section.json")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "section.json"))
    plain = ReadAhead(data, [3, 1])
    assert (plain.ahead, list(plain)) == (0, [3, 1])
    # of a rank on another node, which has no such file
    monkeypatch.setenv(VARIABLE, str(tmp_path / "elsewhere.json"))
    assert ReadAhead(data, [3, 1]).ahead == AHEAD
    assert planned(data) == Options()


def test_readers_that_get_no_slower_need_no_tokens() -> None:
    reader = made(experiment(strided=(strided(1, 5e8), strided(8, 9e8)))).files[0].reader
    assert reader is not None
    assert reader.stagger is None


def test_a_small_machine_bounds_the_memory() -> None:
    reader = made(experiment(), memory=GIB // 4).files[0].reader
    assert reader is not None
    assert reader.memory == GIB // 32


@pytest.mark.parametrize(
    ("kind", "follow"), [("sequential", "ahead"), ("strided", "ahead"), ("shuffled", None)]
)
def test_a_job_that_was_watched(kind: PatternKind, follow: str | None) -> None:
    section = made(watched(kind))
    assert section.files[0].follow == follow
    assert section.files[0].access == kind
    assert any("defaults" in reason for reason in section.reasons)


def test_an_unknown_pattern_is_refused_unless_named() -> None:
    with pytest.raises(UsageError, match="access pattern unknown"):
        made(watched("unknown"))
    assert made(watched("unknown"), "sequential").files[0].access == "sequential"


def dltune(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dltune", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=480,
    )


def database(folder: Path, records: int = 200, size: int = 20_000) -> Path:
    with lmdb.open(str(folder), map_size=1 << 28, sync=False) as env:
        with env.begin(write=True) as txn:
            for number in range(records):
                txn.put(b"%06d" % number, bytes([number % 251]) * size)
        env.sync(True)
    return folder / "data.mdb"


def written(tmp_path: Path, io: Io) -> Path:
    report = tmp_path / "io.json"
    report.write_bytes(msgspec.json.encode(io))
    done = dltune("plan", "io", report, "--overwrite")
    assert done.returncode == 0, done.stderr
    assert "hints 16 records ahead" in done.stderr
    return tmp_path / "plan.json"


# it lasts until the process that gives hints has its file open, and so has noticed it
JOB = """
import contextlib, os, sys, time
from dltune.systems.lmdb import Reader, ReadAhead
def followed():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/cmdline") as told:
                words = told.read().split("\\0")
            if words[-3:-1] == ["dltune.systems.lmdb.follow", str(os.getpid())]:
                held = f"/proc/{pid}/fd"
                return any(os.path.samefile(f"{held}/{n}", sys.argv[1]) for n in os.listdir(held))
    return False
with Reader(sys.argv[1], batch=10, iterations=20) as reader:
    size = sum(len(record.value) for records in reader for record in records)
    print(reader.options.block, reader.options.stagger, size)
print(ReadAhead(sys.argv[1], []).ahead)
deadline = time.monotonic() + 240
while not followed() and time.monotonic() < deadline:
    time.sleep(0.05)
"""


def test_a_job_takes_its_options_from_the_plan_it_runs_with(tmp_path: Path) -> None:
    data = database(tmp_path / "db")
    plan = written(tmp_path, experiment(str(data)))
    job = ["--", sys.executable, "-c", JOB, data]
    done = dltune("run", "--plan", plan, *job)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{1 << 20} 2 {200 * 20_000}\n1600000\n"
    assert "CPU time" in done.stderr
    assert planned(data) == Options()  # without a plan


PLAIN = """
import sys, time, mmap
with open(sys.argv[1], "rb") as file:
    pages = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    pages.madvise(mmap.MADV_RANDOM)  # a kernel may read megabytes ahead by itself
    for at in range(0, 2 << 20, 4096):
        pages[at]
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        from dltune.watch.files.storage import cached
        if cached(file.fileno()).now >= float(sys.argv[2]):
            sys.exit(0)
        time.sleep(0.05)
sys.exit(7)
"""


@pytest.mark.parametrize("access", ["strided", "shuffled"])
def test_an_unmodified_job_is_given_hints(tmp_path: Path, access: str) -> None:
    """It touches 2 MiB of a mapping; the hints bring what comes next, or all of the file."""
    data = database(tmp_path / "db", records=2000)
    io = experiment(str(data), size=data.stat().st_size)
    report = tmp_path / "io.json"
    report.write_bytes(msgspec.json.encode(io))
    done = dltune("plan", "io", report, "--access", access, "--json")
    assert done.returncode == 0, done.stderr
    (told,) = json.loads(done.stdout)["files"]
    assert told["follow"] == ("ahead" if access == "strided" else "whole")
    descriptor = os.open(data, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    until = time.monotonic() + 60
    while cached(descriptor).now > 1 << 20 and time.monotonic() < until:  # others still hold pages
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        time.sleep(0.05)
    # of 1.6 MB ahead the last quarter may be left until the job reads on; without hints, 1 MiB of
    # what was there before and 2 MiB that the job touches are 3.1 MB
    wanted = 3_250_000 if access == "strided" else 40_000_000
    job = ["--", sys.executable, "-c", PLAIN, data, wanted]
    done = dltune("run", "--plan", tmp_path / "plan.json", *job)
    os.close(descriptor)
    assert done.returncode == 0, done.stderr
    assert f"MB of {data}" in done.stderr


def test_a_dry_run_tells_what_would_be_done(tmp_path: Path) -> None:
    data = database(tmp_path / "db", records=10)
    done = dltune("run", "--plan", written(tmp_path, experiment(str(data))), "--dry-run")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{data}: read-ahead hints, 1.5 MiB ahead of the job\n"


def test_into_a_plan_that_exists_keeps_its_other_sections(tmp_path: Path) -> None:
    data = database(tmp_path / "db", records=10)
    profile = tmp_path / "profile.json"
    network = synthetic.network(topology.local(), layers=3, span=0.02)
    profile.write_bytes(msgspec.json.encode(network))
    plan = tmp_path / "both.json"
    assert dltune("plan", profile, "-o", plan).returncode == 0
    report = tmp_path / "io.json"
    report.write_bytes(msgspec.json.encode(experiment(str(data))))
    done = dltune("plan", "io", report, "--into", plan)
    assert done.returncode == 0, done.stderr
    both = load_plan(plan)
    assert both.sections["io"].of(tmp_path / "db/../db/data.mdb") is not None
    # and threads decided anew keep this one
    assert dltune("plan", profile, "--into", plan).returncode == 0
    assert load_plan(plan).sections["io"] == both.sections["io"]
    # also when there were none before; a plan on reading alone is for this machine
    alone = msgspec.structs.replace(
        with_sections(both, threads=None), signatures=(), framework=None, profile=""
    )
    plan.write_bytes(msgspec.json.encode(alone))
    assert dltune("plan", profile, "--into", plan).returncode == 0
    assert load_plan(plan).sections["io"] == both.sections["io"]
    assert load_plan(plan).sections["threads"] == both.sections["threads"]


def test_what_cannot_be_done_in_a_plan_is_told(tmp_path: Path) -> None:
    data = database(tmp_path / "db", records=10)
    plan = written(tmp_path, experiment(str(data)))
    broken = json.loads(plan.read_bytes())
    broken["sections"]["io"]["files"][0]["reader"]["block"] = 5000
    broken["sections"]["io"]["files"][0]["reader"]["stagger"] = 0
    broken["sections"]["io"]["files"][0]["ahead"] = 0
    plan.write_text(json.dumps(broken))
    done = dltune("run", "--plan", plan, "--", "true")
    assert done.returncode == 2
    for told in (
        "reader.block must be a multiple of 4096, above 0, got 5000",
        "reader.stagger must be at least 1, got 0",
        "ahead must be at least 1 (for hints ahead), got 0",
    ):
        assert f"io.files[0] ({data}).{told}" in done.stderr


def test_refusals(tmp_path: Path) -> None:
    report = tmp_path / "io.json"
    report.write_bytes(msgspec.json.encode(watched("mixed")))
    for arguments, told in (
        ((report,), "access pattern mixed"),
        ((report, "-o", report), "is an input of the plan"),
        ((report, "-o", "a", "--into", "b"), "both name"),
        ((tmp_path / "none.json",), "cannot read"),
    ):
        done = dltune("plan", "io", *arguments)
        assert done.returncode == 2, done.stderr
        assert told in done.stderr
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "plan.json").exists()
    with pytest.raises(UsageError):
        ReadAhead(tmp_path, [])
    Reader(tmp_path, batch=1).close()
