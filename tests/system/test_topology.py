from __future__ import annotations

import os

import pytest

from dltune.base.documents import struct_faults
from dltune.system.topology import builtin_machine, local, survey


def test_the_machine_at_hand_is_what_the_kernel_lets_this_process_use():
    machine = local()
    cpus = {cpu for core in machine.cores for cpu in core.cpus}
    assert cpus == os.sched_getaffinity(0)
    assert struct_faults("", machine) == []
    assert machine.memory is None or machine.memory > 0


def test_two_socket_xeon_has_a_tile_for_each_socket(xeon):
    machine = local(xeon.root)
    assert machine.name == "Intel(R) Xeon(R) Gold"
    assert machine.sockets == 2
    assert machine.tiles == (tuple(range(8)), tuple(range(8, 16)))
    assert [core.cpus for core in machine.cores[:2]] == [(0, 16), (2, 18)]
    assert [core.numa for core in machine.cores] == [0] * 8 + [1] * 8
    assert machine.shared_cache == 25344 * 1024
    assert machine.memory == 8 * 2**30
    assert struct_faults("", machine) == []
    assert survey(xeon.root).gaps == {}


def test_one_socket_of_a_xeon_is_one_tile(xeon):
    xeon.write("proc/self/status", "Cpus_allowed_list:\t" + ",".join(map(str, range(0, 32, 2))))
    machine = local(xeon.root)
    assert machine.sockets == 1
    assert machine.tiles == (tuple(range(8)),)
    assert machine.shared_cache == 25344 * 1024


def test_epyc_has_a_tile_for_each_core_complex(epyc):
    machine = local(epyc.root)
    assert [len(tile) for tile in machine.tiles] == [4] * 4
    assert machine.shared_cache == 16 * 2**20
    assert machine.sockets == 1
    assert {core.numa for core in machine.cores} == {0, 1}


def test_one_core_of_each_complex_makes_tiles_of_one_core(epyc):
    epyc.write("proc/self/status", "Cpus_allowed_list:\t0,4,8")
    machine = local(epyc.root)
    assert machine.tiles == ((0,), (1,), (2,))
    assert machine.shared_cache == 16 * 2**20


def test_one_complex_alone_is_one_tile(epyc):
    epyc.write("proc/self/status", "Cpus_allowed_list:\t4-7")
    machine = local(epyc.root)
    assert machine.tiles == ((0, 1, 2, 3),)
    assert machine.shared_cache == 16 * 2**20


def test_knl_from_sysfs_is_the_known_one(knl):
    machine, known = local(knl.root), builtin_machine("knl-7250")
    assert machine.cores == known.cores
    assert machine.shared_cache == known.shared_cache
    assert machine.memory == known.memory


def test_the_largest_sharing_level_wins_but_never_one_that_joins_all(tree):
    """Clusters of 4 cores share an L2; all 12 share an L3."""
    tree.machine(
        [(core,) for core in range(12)],
        caches=[(1, "Data", 1, "32K"), (2, "Unified", 4, "4M"), (3, "Unified", 12, "96M")],
    )
    machine = local(tree.root)
    assert [len(tile) for tile in machine.tiles] == [4, 4, 4]
    assert machine.shared_cache == 4 * 2**20


def test_performance_cores_stand_alone_where_efficient_ones_share(tree):
    tree.machine(
        [(0, 1), (2, 3), (4,), (5,), (6,), (7,)],
        caches=[(2, "Unified", 1, "2M"), (3, "Unified", 6, "30M")],
    )
    for cpu in range(4, 8):
        folder = f"sys/devices/system/cpu/cpu{cpu}/cache/index0"
        tree.write(f"{folder}/shared_cpu_list", "4-7")
    assert [len(tile) for tile in local(tree.root).tiles] == [1, 1, 4]


def test_container_with_cpuset_and_quota(epyc):
    epyc.cgroup2("/")
    epyc.write("sys/fs/cgroup/cpuset.cpus.effective", "2-3")
    epyc.write("sys/fs/cgroup/cpu.max", "150000 100000")
    epyc.write("sys/fs/cgroup/memory.max", 2**30)
    found = survey(epyc.root)
    assert [core.cpus for core in found.machine.cores] == [(2,), (3,)]
    assert found.machine.quota == 1.5
    assert found.machine.memory == 2**30
    assert found.cpuset == {2, 3}
    assert len(found.host_cores) == 16


def test_only_the_allowed_hardware_threads_of_a_core_count(xeon):
    xeon.write("proc/self/status", "Cpus_allowed_list:\t0,2,16")
    assert [core.cpus for core in local(xeon.root).cores] == [(0, 16), (2,)]


def test_virtual_machine_without_cache_information(tree):
    tree.machine([(core,) for core in range(4)], packages=lambda core: core // 2)
    found = survey(tree.root)
    assert found.machine.tiles == ((0, 1), (2, 3))
    assert found.machine.shared_cache is None
    assert set(found.gaps) == {"tiles"}


def test_private_caches_alone_leave_the_socket_as_the_tile(tree):
    tree.machine([(core,) for core in range(4)], caches=[(2, "Unified", 1, "4M")])
    machine = local(tree.root)
    assert machine.tiles == ((0, 1, 2, 3),)
    assert machine.shared_cache is None


def test_a_socket_for_each_core_is_not_believed(tree):
    tree.machine(
        [(core,) for core in range(4)],
        packages=lambda core: core,
        caches=[(3, "Unified", 1, "16M")],
    )
    found = survey(tree.root)
    assert found.machine.sockets == 1
    assert found.machine.tiles == ((0, 1, 2, 3),)
    assert "sockets" in found.gaps


def test_offline_cpus_are_not_there(tree):
    tree.machine([(core, core + 4) for core in range(4)], offline=[3, 5, 7])
    machine = local(tree.root)
    assert [core.cpus for core in machine.cores] == [(0, 4), (1,), (2, 6)]


def test_a_kernel_that_tells_nothing_but_its_cpus(tree):
    for cpu in range(3):
        tree.write(f"sys/devices/system/cpu/cpu{cpu}/uevent", "")
    found = survey(tree.root)
    assert [core.cpus for core in found.machine.cores] == [(0,), (1,), (2,)]
    assert set(found.gaps) == {"cores", "sockets", "numa", "tiles"}
    assert found.machine.memory is None
    assert struct_faults("", found.machine) == []


@pytest.mark.parametrize("text", ["-1", "", "4294967295x"])
def test_a_package_number_that_is_none(tree, text):
    tree.machine([(0,), (1,)], caches=[(3, "Unified", 2, "8M")])
    for cpu in range(2):
        tree.write(f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id", text)
    found = survey(tree.root)
    assert {core.socket for core in found.machine.cores} == {0}
    assert "sockets" in found.gaps
