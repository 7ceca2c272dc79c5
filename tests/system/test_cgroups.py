from __future__ import annotations

import os

import pytest

from dltune.system.kernel_files import limits, oom_kills, reclaims, throttled

TWO = "sys/fs/cgroup"


def test_version_2_takes_the_tightest_limit_on_the_way_up(tree):
    tree.cgroup2("/kubepods/pod1/box")
    tree.write(f"{TWO}/kubepods/cpu.max", "max 100000")
    tree.write(f"{TWO}/kubepods/pod1/cpu.max", "150000 100000")
    tree.write(f"{TWO}/kubepods/pod1/box/cpu.max", "400000 100000")
    tree.write(f"{TWO}/kubepods/memory.max", 8 * 2**30)
    tree.write(f"{TWO}/kubepods/pod1/box/memory.max", "max")
    tree.write(f"{TWO}/cpuset.cpus.effective", "0-7")
    tree.write(f"{TWO}/kubepods/pod1/box/cpuset.cpus.effective", "2-3")
    found = limits(tree.root)
    assert found.quota == 1.5
    assert found.memory == 8 * 2**30
    assert found.cpus == {2, 3}


def test_version_1_takes_the_tightest_limit_on_the_way_up(tree):
    tree.cgroup1("/docker/box")
    cpu, cpuset = f"{TWO}/cpu,cpuacct", f"{TWO}/cpuset"
    tree.write(f"{cpu}/cpu.cfs_quota_us", -1)
    tree.write(f"{cpu}/cpu.cfs_period_us", 100000)
    tree.write(f"{cpu}/docker/cpu.cfs_quota_us", 50000)
    tree.write(f"{cpu}/docker/cpu.cfs_period_us", 20000)
    tree.write(f"{cpu}/docker/box/cpu.cfs_quota_us", 300000)
    tree.write(f"{cpu}/docker/box/cpu.cfs_period_us", 100000)
    tree.write(f"{cpuset}/cpuset.cpus", "0-15")
    tree.write(f"{cpuset}/docker/cpuset.cpus", "0-3")
    tree.write(f"{cpuset}/docker/box/cpuset.effective_cpus", "1,3")
    tree.write(f"{TWO}/memory/docker/box/memory.limit_in_bytes", 2**30)
    found = limits(tree.root)
    assert found.quota == 2.5
    assert found.cpus == {1, 3}
    assert found.memory == 2**30


def test_a_container_that_sees_its_own_group_as_the_mount(tree):
    """Without a cgroup namespace the path is the host's, and the mount begins at the container."""
    tree.cgroup1("/docker/box/inner", mount_root="/docker/box")
    tree.write(f"{TWO}/cpu,cpuacct/inner/cpu.cfs_quota_us", 200000)
    tree.write(f"{TWO}/cpu,cpuacct/inner/cpu.cfs_period_us", 100000)
    assert limits(tree.root).quota == 2.0


def test_a_group_outside_what_is_mounted_counts_from_the_mount(tree):
    tree.cgroup2("/../elsewhere")
    tree.write(f"{TWO}/cpu.max", "100000 100000")
    tree.write("sys/fs/elsewhere/cpu.max", "1000 100000")
    assert limits(tree.root).quota == 1.0


def test_no_groups_no_limits(tree):
    found = limits(tree.root)
    assert (found.cpus, found.quota, found.memory) == (None, None, None)


def test_processes_ended_for_want_of_memory_are_those_of_the_own_group(tree):
    tree.cgroup2("/kubepods/box")
    assert oom_kills(tree.root) == 0
    tree.write(f"{TWO}/kubepods/memory.events", "oom 9\noom_kill 9\n")
    tree.write(f"{TWO}/kubepods/box/memory.events", "low 0\noom 4\noom_kill 2\noom_group_kill 0\n")
    assert oom_kills(tree.root) == 2


def test_version_1_counts_them_in_another_file(tree):
    tree.cgroup1("/docker/box")
    held = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"
    tree.write(f"{TWO}/memory/docker/box/memory.oom_control", held)
    assert oom_kills(tree.root) == 3


@pytest.mark.parametrize("leaf", ["max", 16 * 2**30])
def test_reclaims_are_counted_where_the_limit_is(tree, leaf):
    """As under Slurm, whose limits are above the group of a task."""
    tree.cgroup2("/job/step/task")
    own, above = (f"{TWO}/job/step/task", f"{TWO}/job")
    tree.write(f"{own}/memory.max", leaf)
    tree.write(f"{own}/memory.events", "low 0\nhigh 0\nmax 0\noom 0")
    tree.write(f"{above}/memory.max", 8 * 2**30)
    tree.write(f"{above}/memory.events", "low 0\nhigh 0\nmax 7\noom 0")
    tree.write(f"proc/{os.getpid()}/cgroup", "0::/job/step/task")
    assert reclaims(os.getpid(), tree.root) == 7


def test_each_group_with_a_quota_may_stand_still(tree):
    tree.cgroup2("/job/leaf")
    for group, quota, stood in (("job", "100000", 3_000_000), ("job/leaf", "max", 9_000_000)):
        tree.write(f"sys/fs/cgroup/{group}/cpu.max", f"{quota} 100000")
        tree.write(f"sys/fs/cgroup/{group}/cpu.stat", f"usage_usec 5\nthrottled_usec {stood}")
    tree.write("proc/7/cgroup", "0::/job/leaf")
    assert throttled(7, tree.root) == 3.0
    tree.write("sys/fs/cgroup/job/leaf/cpu.max", "400000 100000")
    assert throttled(7, tree.root) == 12.0
    tree.write("proc/8/cgroup", "0::/")
    assert throttled(8, tree.root) is None
