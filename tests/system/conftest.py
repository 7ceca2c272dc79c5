"""Hand-built /sys and /proc trees of machines that are not at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from dltune.system import kernel_files


class Tree:
    """A root folder with `proc` and `sys`; every method adds facts to it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, text: object) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    def machine(
        self,
        cores: Iterable[Iterable[int]],
        *,
        name: str = "A CPU",
        packages: Callable[[int], int] = lambda core: 0,
        caches: Iterable[tuple[int, str, int, str]] = (),
        numa: dict[int, str] | None = None,
        memory_kb: int = 8 * 2**20,
        mask: str | None = None,
        offline: Iterable[int] = (),
    ) -> None:
        """`cores`: the CPUs of each core. `caches`: level, type, cores that share one, size."""
        groups = [tuple(core) for core in cores]
        gone = set(offline)
        online = [cpu for group in groups for cpu in group if cpu not in gone]
        cpu_root = "sys/devices/system/cpu"
        self.write(f"{cpu_root}/online", kernel_files.format_cpulist(online))
        for index, group in enumerate(groups):
            for cpu in group:
                folder = f"{cpu_root}/cpu{cpu}"
                (self.root / folder).mkdir(parents=True, exist_ok=True)
                if cpu in gone:  # the kernel drops topology and caches of an offline CPU
                    continue
                here = kernel_files.format_cpulist(set(group) - gone)
                self.write(f"{folder}/topology/thread_siblings_list", here)
                self.write(f"{folder}/topology/core_id", index)
                self.write(f"{folder}/topology/physical_package_id", packages(index))
                for number, (level, kind, sharing, size) in enumerate(caches):
                    first = index // sharing * sharing
                    shared = {c for g in groups[first : first + sharing] for c in g} - gone
                    cache = f"{folder}/cache/index{number}"
                    self.write(f"{cache}/level", level)
                    self.write(f"{cache}/type", kind)
                    self.write(f"{cache}/size", size)
                    self.write(f"{cache}/shared_cpu_list", kernel_files.format_cpulist(shared))
        for node, cpus in (
            numa if numa is not None else {0: kernel_files.format_cpulist(online)}
        ).items():
            self.write(f"sys/devices/system/node/node{node}/cpulist", cpus)
        self.write("proc/cpuinfo", f"processor\t: 0\nmodel name\t: {name}")
        self.write("proc/meminfo", f"MemTotal:       {memory_kb} kB")
        self.write("proc/self/status", f"Name:\tpython\nCpus_allowed_list:\t{mask or '0-1023'}")
        self.write("proc/self/cgroup", "0::/")
        self.write("proc/self/mountinfo", "")

    def cgroup2(self, path: str, mount_root: str = "/") -> None:
        self.write("proc/self/cgroup", f"0::{path}")
        self.write(
            "proc/self/mountinfo",
            f"30 24 0:26 {mount_root} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate",
        )

    def cgroup1(self, path: str, mount_root: str = "/") -> None:
        named = ("cpu,cpuacct", "cpuset", "memory")
        self.write(
            "proc/self/cgroup",
            "\n".join(f"{n + 2}:{c}:{path}" for n, c in enumerate(named)) + "\n0::/",
        )
        self.write(
            "proc/self/mountinfo",
            "\n".join(
                f"3{n} 24 0:2{n} {mount_root} /sys/fs/cgroup/{c} rw - cgroup cgroup rw,{c}"
                for n, c in enumerate(named)
            ),
        )


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


@pytest.fixture
def xeon(tree: Tree) -> Tree:
    """Two sockets of 8 cores, SMT; CPUs alternate between the sockets as Dell numbers them."""
    cores = [(2 * c + s, 2 * c + s + 16) for s in range(2) for c in range(8)]
    tree.machine(
        cores,
        name="Intel(R) Xeon(R) Gold",
        packages=lambda core: core // 8,
        caches=[
            (1, "Data", 1, "32K"),
            (1, "Instruction", 1, "32K"),
            (2, "Unified", 1, "1024K"),
            (3, "Unified", 8, "25344K"),
        ],
        numa={node: ",".join(str(cpu) for cpu in range(node, 32, 2)) for node in range(2)},
    )
    return tree


@pytest.fixture
def epyc(tree: Tree) -> Tree:
    """One socket of 4 core complexes of 4 cores, no SMT, two NUMA nodes."""
    tree.machine(
        [(core,) for core in range(16)],
        name="AMD EPYC",
        caches=[(1, "Data", 1, "32K"), (2, "Unified", 1, "512K"), (3, "Unified", 4, "16M")],
        numa={0: "0-7", 1: "8-15"},
    )
    return tree


@pytest.fixture
def knl(tree: Tree) -> Tree:
    """34 tiles of two cores with a common L2, four hardware threads, no L3."""
    tree.machine(
        [tuple(range(core, 272, 68)) for core in range(68)],
        name="Intel(R) Xeon Phi(TM) CPU 7250",
        caches=[
            (1, "Data", 1, "32K"),
            (1, "Instruction", 1, "32K"),
            (2, "Unified", 2, "1024K"),
        ],
        numa={
            0: kernel_files.format_cpulist(range(272)),
            1: "",
        },  # flat mode: node 1 is memory alone
        memory_kb=16 * 2**20,
    )
    return tree
