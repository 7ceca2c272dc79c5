from __future__ import annotations

import pytest

from dltune.system.roofs.measure import fingerprint, unknown
from dltune.system.topology import local

CPU = "model name\t: A CPU\nmicrocode\t: 0x1\nflags\t\t: sse2 avx"


def of(tree) -> str:
    return fingerprint(local(tree.root), tree.root)


def test_the_same_machine_is_known_again(xeon):
    xeon.write("proc/cpuinfo", CPU)
    assert of(xeon) == of(xeon)
    before = of(xeon)
    xeon.write("proc/cpuinfo", CPU.replace("sse2 avx", "avx sse2"))
    assert of(xeon) == before, "the order of flags tells nothing"


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("proc/cpuinfo", CPU.replace("0x1", "0x2")),
        ("proc/cpuinfo", CPU.replace("avx", "avx avx2")),
        ("proc/cpuinfo", CPU.replace("A CPU", "Another")),
        ("proc/self/status", "Cpus_allowed_list:\t0-3"),
        ("sys/devices/system/cpu/cpu0/cache/index0/size", "48K"),
    ],
)
def test_another_cpu_and_other_cores_are_not(xeon, file, content):
    xeon.write("proc/cpuinfo", CPU)
    before = of(xeon)
    xeon.write(file, content)
    assert of(xeon) != before


def test_a_quota_makes_another_machine(xeon):
    xeon.write("proc/cpuinfo", CPU)
    before = of(xeon)
    xeon.cgroup2("/job")
    xeon.write("sys/fs/cgroup/job/cpu.max", "150000 100000")
    assert of(xeon) != before


def test_what_cannot_be_measured_is_told():
    assert unknown("x86_64") is None
    assert (
        unknown("aarch64")
        == "peak performance can be measured only on x86-64, and this CPU is aarch64"
    )
