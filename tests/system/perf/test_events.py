from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dltune.base.errors import UsageError
from dltune.system.perf import events
from dltune.system.perf.access import available
from dltune.system.perf.events import ALIASES, CACHE, HARDWARE, SOFTWARE, Event, parse

DEVICES = "sys/bus/event_source/devices"


@pytest.fixture
def pmu(tree):
    """An Intel core's unit, an uncore one, and one that no thread is counted by."""
    tree.write(f"{DEVICES}/cpu/type", 4)
    for field, layout in {
        "event": "config:0-7",
        "umask": "config:8-15",
        "edge": "config:18",
        "inv": "config:23",
        "cmask": "config:24-31",
        "offcore_rsp": "config1:0-63",
        "ldlat": "config1:0-15",
        "split": "config:32-35,40-43",
        "late": "config3:0-7",
        "odd": "config:seven",
    }.items():
        tree.write(f"{DEVICES}/cpu/format/{field}", layout)
    tree.write(f"{DEVICES}/cpu/events/mem-loads", "event=0xcd,umask=0x1,ldlat=3")
    tree.write(f"{DEVICES}/cpu/events/mem-loads.unit", "loads")
    tree.write(f"{DEVICES}/cpu/events/slots", "event=0x00,umask=0x4")
    tree.write(f"{DEVICES}/cpu/events/beef", "event=0x1")
    tree.write(f"{DEVICES}/cpu/events/rare", "event=0x2")
    tree.write(f"{DEVICES}/cpu/events/chosen", "event=0x3,umask=?")
    tree.write(f"{DEVICES}/uncore_imc_0/type", 17)
    tree.write(f"{DEVICES}/uncore_imc_0/cpumask", "0,8")
    tree.write(f"{DEVICES}/uncore_imc_0/format/event", "config:0-7")
    tree.write(f"{DEVICES}/cpu_atom/type", 10)
    tree.write(f"{DEVICES}/cpu_atom/cpus", "8-15")
    tree.write(f"{DEVICES}/cpu_atom/format/event", "config:0-7")
    return tree.root


@pytest.mark.parametrize(
    ("text", "kind", "config"),
    [
        ("cycles", 0, 0),
        ("cpu-cycles", 0, 0),
        ("instructions", 0, 1),
        ("branch-instructions", 0, 4),
        ("ref-cycles", 0, 9),
        ("task-clock", 1, 1),
        ("faults", 1, 2),
        ("cs", 1, 3),
        ("migrations", 1, 4),
        ("minor-faults", 1, 5),
        ("major-faults", 1, 6),
        # id | operation << 8 | miss << 16, as in perf_event_open(2)
        ("L1-dcache-loads", 3, 0x00000),
        ("L1-dcache-load-misses", 3, 0x10000),
        ("LLC-load-misses", 3, 0x10002),
        ("llc-LOADS", 3, 0x00002),
        ("LLC-store-misses", 3, 0x10102),
        ("LLC-prefetches", 3, 0x00202),
        ("dTLB-store-misses", 3, 0x10103),
        ("iTLB-load-misses", 3, 0x10004),
        ("branch-loads", 3, 0x00005),
        ("node-prefetch-misses", 3, 0x10206),
        ("r412e", 4, 0x412E),
        ("rFFffFFffFFffFFff", 4, 2**64 - 1),
    ],
)
def test_names(text, kind, config):
    event = parse(text)
    assert (event.type, event.config, event.config1, event.config2) == (kind, config, 0, 0)


def test_every_name_is_read_back_as_itself():
    for name in (*HARDWARE, *SOFTWARE, *CACHE):
        assert parse(name).name == name
    for alias, name in ALIASES.items():
        assert parse(f" {alias.upper()} ") == parse(name)
    assert len(CACHE) == 2 * (3 + 2 + 3 + 3 + 1 + 1 + 3)


def test_what_is_counted_of_the_kernel():
    assert parse("cycles").exclude_kernel
    assert parse("LLC-loads").exclude_kernel
    assert parse("r3c").exclude_kernel
    assert parse("minor-faults").exclude_kernel == (not events.may_count_kernel())
    assert not parse("context-switches").exclude_kernel
    assert not parse("cpu-migrations").exclude_kernel
    assert parse("task-clock").exclude_kernel
    assert parse("cycles:uk") == Event("cycles:uk", 0, 0, exclude_kernel=False)
    assert parse("page-faults:u") == Event("page-faults:u", 1, 2, exclude_kernel=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cpu/event=0x3c,umask=0x0/", Event("cpu/event=0x3c,umask=0x0/", 4, 0x3C)),
        ("cpu/event=0x2e,umask=0x41,name=L2/", Event("L2", 4, 0x412E)),
        ("cpu/event=1,edge,inv,cmask=2/", Event("cpu/event=1,edge,inv,cmask=2/", 4, 0x2840001)),
        ("cpu/event=0xb7,offcore_rsp=0x4000/", None),
        ("cpu/mem-loads/", Event("cpu/mem-loads/", 4, 0x1CD, 3)),
        ("cpu/mem-loads,ldlat=50/", Event("cpu/mem-loads,ldlat=50/", 4, 0x1CD, 50)),
        ("cpu/ldlat=50,mem-loads/", Event("cpu/ldlat=50,mem-loads/", 4, 0x1CD, 50)),
        ("cpu/chosen,umask=2/", Event("cpu/chosen,umask=2/", 4, 0x203)),
        (
            "cpu/config=7,config1=8,config2=9/",
            Event("cpu/config=7,config1=8,config2=9/", 4, 7, 8, 9),
        ),
        ("cpu/split=0xab/", Event("cpu/split=0xab/", 4, 0xB << 32 | 0xA << 40)),
        ("cpu/event=1/u", Event("cpu/event=1/:u", 4, 1)),
        ("cpu/event=1/:uk", Event("cpu/event=1/:uk", 4, 1, exclude_kernel=False)),
        ("mem-loads", Event("mem-loads", 4, 0x1CD, 3)),
        ("slots", Event("slots", 4, 0x400)),
        ("rare", Event("rare", 4, 2)),
        ("beef", Event("beef", 4, 1)),
        ("uncore_imc_0/event=4/", Event("uncore_imc_0/event=4/", 17, 4, exclude_kernel=False)),
        ("cpu_atom/event=4/", Event("cpu_atom/event=4/", 10, 4)),
    ],
)
def test_units(pmu, text, expected):
    found = parse(text, pmu)
    if expected is None:
        expected = Event(text, 4, 0xB7, 0x4000)
    assert found == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cylces", "unknown event 'cylces'; did you mean cycles, "),
        ("LLC-load-miss", "did you mean LLC-load-misses"),
        ("mem-load", "did you mean mem-loads"),
        ("mem-loads.unit", "unknown event"),
        ("", "unknown event ''"),
        ("r12345678123456789", "unknown event"),
        ("cpu/evnt=1/", "unit 'cpu' has no field or event 'evnt'; did you mean event"),
        ("cpu/mem-lods/", "did you mean mem-loads"),
        ("cpu/event=0x100/", "event=0x100 is too large for the field (config:0-7)"),
        ("cpu/edge=2/", "is too large for the field"),
        ("cpu/event=-1/", "event=-1 is not a number"),
        ("cpu/event=x/", "event=x is not a number"),
        ("cpu/a b/", "'a b' is not FIELD=VALUE"),
        ("cpu/late=1/", "field late is part of config3, which dltune cannot set"),
        ("cpu/odd=1/", "cannot parse /sys/bus/event_source/devices/cpu/format/odd"),
        ("cpu/chosen/", "field umask has no value"),
        ("cup/event=1/", "unknown unit 'cup'; did you mean cpu"),
        ("config/config=0x1ffffffffffffffff/", "unknown unit 'config'"),
        ("cpu/config=0x1ffffffffffffffff/", "is too large for the field"),
    ],
)
def test_what_is_not_there(pmu, text, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        parse(text, pmu)


def test_no_unit_at_all(tree):
    with pytest.raises(UsageError, match="no performance monitoring unit") as raised:
        parse("cpu/event=1/", tree.root)
    assert "virtual PMU" in raised.value.remedy


def test_tracepoints(tree):
    with pytest.raises(UsageError, match="not mounted") as raised:
        parse("sched:sched_switch", tree.root)
    assert "mount -t tracefs" in raised.value.remedy
    tree.write("sys/kernel/debug/tracing/events/sched/sched_switch/id", 316)
    tree.write("sys/kernel/debug/tracing/events/sched/enable", 0)
    event = parse("sched:sched_switch", tree.root)
    assert event == Event("sched:sched_switch", 2, 316, exclude_kernel=False)
    assert event.software
    with pytest.raises(UsageError, match="sched has no tracepoint 'sched_swich'; did you mean"):
        parse("sched:sched_swich", tree.root)
    with pytest.raises(UsageError, match="unknown group of tracepoints 'shed'; did you mean sched"):
        parse("shed:sched_switch", tree.root)
    with pytest.raises(UsageError, match="has no tracepoint ''"):
        parse("sched:", tree.root)


@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=5),
    st.randoms(use_true_random=False),
    st.data(),
)
def test_a_field_s_bits_go_to_its_ranges_from_the_lowest(tmp_path_factory, widths, random, data):
    """Against an oracle that places one bit after the other."""
    unit = tmp_path_factory.mktemp("root") / DEVICES / "cpu"
    (unit / "format").mkdir(parents=True)
    (unit / "type").write_text("4\n")
    starts, at = [], 0
    for width in widths:
        starts.append(at)
        at += width + 1
    order = list(zip(starts, widths, strict=True))
    random.shuffle(order)
    layout = ",".join(str(a) if w == 1 else f"{a}-{a + w - 1}" for a, w in order)
    (unit / "format" / "field").write_text(f"config:{layout}\n")
    value = data.draw(st.integers(0, 2 ** sum(widths) - 1))
    expected = 0
    places = [start + bit for start, width in order for bit in range(width)]
    for bit, place in enumerate(places):
        expected |= (value >> bit & 1) << place
    found = parse(f"cpu/field={value}/", unit.parents[4])
    assert found.config == expected


@given(st.text(max_size=30))
def test_any_text_is_an_event_or_a_usage_error(text):
    with contextlib.suppress(UsageError):
        assert 0 <= parse(text).config < 2**64


def test_a_name_longer_than_files_have_is_not_there(pmu, tree):
    tree.write("sys/kernel/tracing/events/sched/sched_switch/id", 316)
    for text in ("e" * 300, f"cpu/{'e' * 300}/", f"{'e' * 300}/e/", f"sched:{'e' * 300}"):
        with pytest.raises(UsageError):
            parse(text, pmu)


@pytest.mark.skipif(shutil.which("perf") is None, reason="perf is not installed")
@pytest.mark.skipif(available().software is not None, reason="nothing can be counted")
def test_every_name_means_what_perf_means_by_it():
    """perf tells the type and config that it asks the kernel for, supported here or not."""
    texts = [*HARDWARE, *SOFTWARE, *CACHE, "r412e", *ALIASES]
    if Path("/", DEVICES, "msr/events/tsc").exists():
        texts.append("msr/tsc/")
    done = subprocess.run(
        ["perf", "stat", "-vv", "-e", ",".join(texts), "true"], capture_output=True, text=True
    )
    if "perf_event_attr:" not in done.stderr:
        pytest.skip("this perf is not for this kernel")
    asked = []
    for block in done.stderr.split("perf_event_attr:\n")[1:]:
        fields = dict(line.split(maxsplit=1) for line in block.splitlines()[:4] if line[:2] == "  ")
        # zeros are left out; the name in brackets comes with newer versions
        pair = tuple(int(fields.get(f, "0").split()[0], 0) for f in ("type", "config"))
        if not asked or asked[-1] != pair:  # perf asks again with less when it is refused
            asked.append(pair)
    assert asked == [(parse(text).type, parse(text).config) for text in texts]
