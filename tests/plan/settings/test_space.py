"""The space on machines and jobs of all kinds: what is tried where."""

from __future__ import annotations

import os
import re
import sys

import pytest

from dltune.base.errors import UsageError
from dltune.plan.settings.choices import Applied, set_by_user
from dltune.plan.settings.setting import Circumstances, Means
from dltune.plan.settings.space import SPACE, by_name
from dltune.schemas.machine import SCHEMA, Core, Machine
from dltune.schemas.plan import Uniform
from dltune.system import kernel_files, memory

PLAIN = Machine(SCHEMA, "plain", tuple(Core((i,), 0, 0, 0) for i in range(4)))
SMT = Machine(SCHEMA, "smt", tuple(Core((i, i + 4), 0, 0, 0) for i in range(4)))
SOCKETS = Machine(SCHEMA, "two", tuple(Core((i,), i // 4, i // 4, i // 4) for i in range(8)))
QUOTA = Machine(SCHEMA, "quota", PLAIN.cores, quota=2.5)
MACHINES = [PLAIN, SMT, SOCKETS, QUOTA, Machine(SCHEMA, "one", PLAIN.cores[:1])]
COMMANDS = [
    ("python", "train.py"),
    ("horovodrun", "-np", "{ranks:2}", "python", "train.py", "{batch:48}"),
    ("horovodrun", "--gloo", "-np", "2", "python", "train.py"),
    ("sh", "-c", "python train.py"),
]


def here(machine: Machine = PLAIN, job=("python", "train.py"), **environment: str) -> Circumstances:
    return Circumstances(machine, job, environment)


@pytest.mark.parametrize("job", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_whatever_is_to_be_tried_can_be_done_and_does_something(machine, job):
    where = here(machine, job)
    for setting in SPACE:
        if setting.unfit(where) is not None:
            continue
        values = setting.values(where)
        assert len(set(values)) == len(values)
        assert all(setting.means(value, where) != Means() for value in values)
        described = {re.sub("[IJN]", r"\\d+", form) for form in setting.meanings}
        assert all(any(re.fullmatch(form, value) for form in described) for value in values)
        assert set(setting.joins) <= {other.name for other in SPACE}
        if setting.name in ("threads", "onednn"):
            assert setting.default(where) in values
        with pytest.raises(UsageError, match=setting.name):
            setting.means("no such value", where)


def test_each_setting_is_described_in_sentences():
    for setting in SPACE:
        for text in (setting.what, setting.helps):
            assert text[0].isupper()
            assert text.endswith(".")
        assert setting.source


def test_names_are_known_and_close_ones_are_offered():
    assert len({setting.name for setting in SPACE}) == len(SPACE)
    assert by_name("threads").name == "threads"
    with pytest.raises(UsageError) as error:
        by_name("alocator")
    assert "allocator" in str(error.value.remedy)


@pytest.mark.parametrize(
    ("machine", "first", "others"),
    [
        (PLAIN, "4x1", {"4x2", "2x2", "1x4", "4x4"}),
        (SMT, "4x1", {"8x1", "8x8"}),
        (SOCKETS, "8x2", {"8x1"}),
        (QUOTA, "4x1", {"2x1"}),
    ],
    ids=lambda x: x.name if isinstance(x, Machine) else "",
)
def test_threads_follow_the_machine(machine, first, others):
    values = by_name("threads").values(here(machine))
    assert values[0] == first
    assert others <= set(values)
    assert by_name("threads").means(first, here()).uniform == Uniform(*map(int, first.split("x")))


def test_affinity_is_for_machines_with_something_to_keep_off():
    affinity = by_name("affinity")
    assert affinity.unfit(here(PLAIN)) is not None
    assert affinity.values(here(SMT)) == ("one-per-core",)
    assert affinity.means("one-per-core", here(SMT)).cpus == (0, 1, 2, 3)
    assert affinity.means("numa-node", here(SOCKETS)).cpus == (0, 1, 2, 3)
    assert affinity.means("by-rank", here(PLAIN, COMMANDS[1])).shared


@pytest.mark.parametrize(
    ("name", "variables"),
    [
        ("threads", {"TF_NUM_INTRAOP_THREADS": "3"}),
        ("onednn", {"TF_ENABLE_ONEDNN_OPTS": "0"}),
        ("xla", {"TF_XLA_FLAGS": "--tf_xla_auto_jit=1"}),
        ("allocator", {"LD_PRELOAD": "/opt/libtcmalloc.so"}),
        ("allocator", {"MALLOC_ARENA_MAX": "2"}),
        ("allocator", {"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=0"}),
        ("openmp", {"LD_PRELOAD": "/opt/mine.so:/opt/libomp-18.so"}),
        ("openmp_wait", {"OMP_WAIT_POLICY": "ACTIVE"}),
        ("openmp_wait", {"GOMP_SPINCOUNT": "0"}),
    ],
)
def test_what_the_user_has_set_is_seen(name, variables):
    assert set_by_user(by_name(name), here()) is None
    (variable, value) = next(iter(variables.items()))
    told = set_by_user(by_name(name), here(**variables))
    assert told is not None
    assert variable in told
    assert value.rpartition("/")[2] in told


def test_other_flags_of_the_user_are_no_obstacle():
    mine = {"TF_XLA_FLAGS": "--tf_xla_min_cluster_size=9", "LD_PRELOAD": "/opt/company/libmine.so"}
    assert set_by_user(by_name("openmp"), here(**mine)) is None
    assert set_by_user(by_name("xla"), here(**mine)) is None
    assert set_by_user(by_name("allocator"), here(**mine)) is None
    made = Applied((), by_name("xla").means("auto", here())).environment(mine)
    assert made["TF_XLA_FLAGS"] == (
        "--tf_xla_min_cluster_size=9 --tf_xla_auto_jit=2 --tf_xla_cpu_global_jit"
    )


@pytest.mark.parametrize(
    ("version", "mode", "values"),
    [
        ((2, 36), "madvise", {"glibc-keep-thp"}),
        ((2, 31), "madvise", {"glibc-keep"}),
        ((2, 36), "never", {"glibc-keep"}),
        ((2, 36), None, {"glibc-keep"}),
        (None, "always", set()),
    ],
)
def test_what_of_glibc_can_be_tuned_depends_on_the_system(monkeypatch, version, mode, values):
    monkeypatch.setattr(memory, "glibc", lambda: version)
    monkeypatch.setattr(memory, "find_allocator", lambda *_: None)
    monkeypatch.setattr(memory, "huge_page_mode", lambda: mode)
    assert set(by_name("allocator").values(here())) == values
    untried = by_name("allocator").untried(here())
    assert "not installed" in untried["tcmalloc"]
    assert not values & set(untried)


def test_bfloat16_needs_a_cpu_that_has_it(monkeypatch):
    math = by_name("onednn_math")
    monkeypatch.setattr(kernel_files, "cpu_flags", lambda: frozenset({"avx2"}))
    assert "AVX512_BF16" in str(math.unfit(here()))
    assert by_name("onednn").default(here()) == "off"
    monkeypatch.setattr(kernel_files, "cpu_flags", lambda: frozenset({"amx_bf16"}))
    assert math.unfit(here()) is None
    assert by_name("onednn").values(here())[0] == "off"


def test_nothing_of_this_process_is_changed():
    before = dict(os.environ)
    where = Circumstances(PLAIN, (sys.executable, "x.py"), os.environ)
    for setting in SPACE:
        if setting.unfit(where) is None:
            for value in setting.values(where):
                Applied((), setting.means(value, where)).environment(os.environ)
    assert dict(os.environ) == before
