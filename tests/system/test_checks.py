from __future__ import annotations

import importlib.util
import sys

import pytest

from dltune.native import build
from dltune.system import memory, topology
from dltune.system.checks import hardware as cores
from dltune.system.checks import software as py_spy
from dltune.system.checks import software as pytorch
from dltune.system.checks import software as tensorflow
from dltune.system.checks.hardware import allocators, huge_pages, perf_events
from dltune.system.checks.software import compiler, plugin
from dltune.system.perf.access import PerfEvents, Refused

# the cores


def test_a_whole_machine_is_ok(xeon):
    survey = topology.survey(xeon.root)
    checks = [
        cores.allowed(survey),
        cores.quota(survey),
        cores.smt(survey, xeon.root),
        cores.tiles(survey),
        cores.numa(survey),
    ]
    assert {check.state for check in checks} == {"ok"}
    assert [check.remedy for check in checks] == [None] * 5
    assert checks[0].found.startswith("16 cores (CPU 0-31) of 16 on Intel(R) Xeon(R) Gold;")
    assert checks[2].found == "2 hardware threads per core on 16 cores"
    assert checks[3].found == "2 tiles of 8 cores sharing 24.75 MiB on 2 sockets"
    assert checks[4].found == "2 nodes (0-1)"


def test_a_container(epyc):
    epyc.cgroup2("/")
    epyc.write("sys/fs/cgroup/cpuset.cpus.effective", "2-3")
    epyc.write("sys/fs/cgroup/cpu.max", "150000 100000")
    survey = topology.survey(epyc.root)
    assert "2 cores (CPU 2-3) of 16" in cores.allowed(survey).found
    assert "affinity mask 0-15, cgroup cpuset 2-3" in cores.allowed(survey).found
    quota = cores.quota(survey)
    assert quota.state == "limited"
    assert "a quota of 1.5 CPUs on 2 cores" in quota.found
    assert "--cores 1)" in quota.remedy


def test_one_core_leaves_nothing_to_choose(epyc):
    epyc.write("proc/self/status", "Cpus_allowed_list:\t5")
    check = cores.allowed(topology.survey(epyc.root))
    assert check.state == "limited"
    assert check.remedy == "give the job more cores (taskset, or the container's cpuset)"


def test_a_quota_as_large_as_the_machine_is_no_limit(epyc):
    epyc.cgroup2("/")
    epyc.write("sys/fs/cgroup/cpu.max", "1600000 100000")
    assert cores.quota(topology.survey(epyc.root)).state == "ok"


def test_siblings_that_are_not_allowed_are_told(xeon):
    xeon.write("proc/self/status", "Cpus_allowed_list:\t0,2")
    check = cores.smt(topology.survey(xeon.root), xeon.root)
    assert check.state == "limited"
    assert check.remedy == "add CPU 16,18 to the affinity mask or the cpuset"


def test_smt_that_is_switched_off(epyc):
    epyc.write("sys/devices/system/cpu/smt/control", "off")
    assert cores.smt(topology.survey(epyc.root), epyc.root).state == "limited"
    epyc.write("sys/devices/system/cpu/smt/control", "notsupported")
    assert cores.smt(topology.survey(epyc.root), epyc.root).state == "ok"


def test_what_a_hypervisor_hides_is_told(tree):
    for cpu in range(3):
        tree.write(f"sys/devices/system/cpu/cpu{cpu}/uevent", "")
    survey = topology.survey(tree.root)
    checks = [cores.allowed(survey), cores.tiles(survey), cores.numa(survey)]
    assert {check.state for check in checks} == {"limited"}
    for check, word in zip(checks, ("counts each as a core", "cache", "NUMA"), strict=True):
        assert word in check.found
        assert check.remedy == cores.TELL_TOPOLOGY


# pages and events


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("[always] madvise never", "ok"),
        ("always [madvise] never", "limited"),
        ("always madvise [never]", "limited"),
        (None, "missing"),
    ],
)
def test_huge_pages(tree, text, state):
    if text:
        tree.write("sys/kernel/mm/transparent_hugepage/enabled", text)
    check = huge_pages(tree.root)
    assert check.state == state
    assert (check.remedy is None) == (state == "ok")


def test_allocators(monkeypatch):
    monkeypatch.setattr(memory, "find_allocator", lambda *_: None)
    monkeypatch.setattr(memory, "glibc", lambda: (2, 31))
    check = allocators()
    assert (check.state, check.found) == ("limited", "glibc 2.31 only")
    assert check.remedy is not None
    monkeypatch.setattr(memory, "find_allocator", lambda name, _: name == "jemalloc" or None)
    check = allocators()
    assert (check.state, check.found, check.remedy) == ("ok", "glibc 2.31, jemalloc", None)


def test_counters():
    refused = Refused("there is no PMU", "get one")
    hardware, software, paranoid = perf_events(PerfEvents(refused, None, 2))
    assert (hardware.state, hardware.found, hardware.remedy) == (
        "missing",
        "there is no PMU",
        "get one",
    )
    assert (software.state, software.remedy) == ("ok", None)
    assert paranoid.state == "ok"


def test_a_paranoid_level_matters_only_where_it_bars():
    refused = Refused("barred", "lower it")
    assert perf_events(PerfEvents(refused, refused, 4))[2].state == "limited"
    assert perf_events(PerfEvents(None, None, 4))[2].state == "ok"
    assert perf_events(PerfEvents(refused, refused, None))[2].state == "missing"


# compiler and plugin


def test_compiler(monkeypatch, tmp_path):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    check = compiler()
    assert (check.state, check.required) == ("missing", True)
    monkeypatch.setenv("CXX", "no-such-compiler -O2")
    check = compiler()
    assert check.state == "missing"
    assert "no-such-compiler -O2 cannot be run" in check.found
    script = tmp_path / "mine"
    script.write_text("#!/bin/sh\necho mine 1.0\n")
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    check = compiler()
    assert (check.state, check.found) == ("ok", f"{script}: mine 1.0")


@pytest.fixture
def source(tmp_path, monkeypatch):
    script = tmp_path / "compiler"
    script.write_text("#!/bin/sh\necho mine 1.0\n")
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    monkeypatch.setenv("DLTUNE_CACHE", str(tmp_path / "cache" / "deep"))
    file = tmp_path / "plugin.cc"
    file.write_text("int x;")
    return file


def test_plugin_not_built_built_and_failed(source):
    assert "not built yet" in plugin([source], [], "").found
    path = build.library_path("plugin", [source], [], "")
    assert not path.parent.exists(), "looking must leave nothing behind"
    path.parent.mkdir(parents=True)
    log = path.with_suffix(".log")
    log.write_text("error")
    check = plugin([source], [], "")
    assert (check.state, check.required) == ("missing", True)
    assert str(log) in check.remedy
    path.write_text("")
    assert plugin([source], [], "").found == f"built: {path}"


def test_plugin_without_a_place_to_build(source, tmp_path, monkeypatch):
    monkeypatch.setenv("DLTUNE_CACHE", "/proc/dltune")
    check = plugin([source], [], "")
    assert (check.state, check.required) == ("missing", True)
    assert "DLTUNE_CACHE" in check.remedy


def test_plugin_without_a_compiler(source, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert plugin([source], [], "").state == "missing"


# TensorFlow


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """Makes a pretended TensorFlow the only one that can be found."""
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)

    def make(name: str | None, version: str, build_info: str = "") -> None:
        site = tmp_path / "site"
        package = site / "tensorflow"
        (package / "python/platform").mkdir(parents=True)
        (package / "__init__.py").write_text("raise RuntimeError('imported')")
        (package / "python/platform/build_info.py").write_text(build_info)
        if name:
            info = site / f"{name.replace('-', '_')}-{version}.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(
                f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
            )
        monkeypatch.syspath_prepend(str(site))

    return make


def test_tensorflow_is_found_without_importing_it(environment):
    environment("tensorflow-cpu", "2.21.0", "build_info = dict([('is_cuda_build', False)])")
    found = tensorflow.installed_tensorflow()
    assert (found.version, found.gpu) == ("2.21.0", False)
    check = tensorflow.tensorflow(found)
    assert check.state == "ok"
    assert check.found.startswith("2.21.0, CPU build, in Python 3.")
    assert "tensorflow" not in sys.modules


def test_a_gpu_build(environment):
    environment("tensorflow", "2.18.1", "build_info = dict([('is_cuda_build', True)])")
    check = tensorflow.tensorflow(tensorflow.installed_tensorflow())
    assert check.state == "ok"
    assert "GPU build" in check.found


@pytest.mark.parametrize("version", ["2.15.1", "1.15.0"])
def test_too_old(environment, version):
    environment("tensorflow", version)
    check = tensorflow.tensorflow(tensorflow.installed_tensorflow())
    assert check.state == "limited"
    assert "too old" in check.found


def test_a_tensorflow_that_no_distribution_owns(environment, monkeypatch):
    environment(None, "")
    check = tensorflow.tensorflow(tensorflow.installed_tensorflow())
    assert check.state == "limited"
    assert "unknown version" in check.found


def test_no_tensorflow(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    found = tensorflow.installed_tensorflow()
    assert found is None
    check = tensorflow.tensorflow(found)
    assert (check.state, check.required) == ("limited", False)
    assert sys.executable in check.found


@pytest.fixture
def torch(tmp_path, monkeypatch):
    """A package whose version file says so."""

    def install(told: str) -> None:
        (tmp_path / "torch" / "lib").mkdir(parents=True)
        (tmp_path / "torch" / "__init__.py").touch()
        (tmp_path / "torch" / "version.py").write_text(told)
        for name in ("libgomp.so.1", "libgompx", "libtorch_cpu.so"):
            (tmp_path / "torch" / "lib" / name).touch()
        monkeypatch.syspath_prepend(tmp_path)

    monkeypatch.delitem(sys.modules, "torch", raising=False)
    return install


def test_pytorch_is_found_without_importing_it(torch):
    torch("__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n")
    check = pytorch.pytorch(None, 4)
    assert (check.state, check.remedy) == ("ok", None)
    assert check.found == "2.13.0+cpu, CPU build, OpenMP: libgomp.so.1"
    assert "torch" not in sys.modules


def test_pytorch_under_a_quota(torch):
    torch("__version__ = '2.6.0'\ncuda: Optional[str] = '12.4'\n")
    check = pytorch.pytorch(1.5, 4)
    assert (check.state, check.remedy) == ("limited", "set OMP_NUM_THREADS=2 for the job")
    assert "2.6.0, GPU build" in check.found
    assert "it ignores the quota of 1.5 CPUs and starts 4 threads per op" in check.found
    assert pytorch.pytorch(4.0, 4).state == "ok"


def test_a_pytorch_that_is_too_old(torch):
    torch("__version__ = '2.5.1'\n")
    check = pytorch.pytorch(None, 4)
    assert check.state == "limited"
    assert "2.5.1; dltune needs 2.6 or newer" in check.found


def test_no_pytorch(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert pytorch.pytorch(None, 4).state == "ok"


def test_a_folder_of_that_name_is_not_tensorflow(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    (tmp_path / "tensorflow").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert tensorflow.installed_tensorflow() is None


def test_the_oldest_version_is_that_of_the_plugin():
    from dltune.frameworks.tensorflow.inject import _dltune_tensorflow

    assert tensorflow.OLDEST_TENSORFLOW == _dltune_tensorflow.OLDEST


# py-spy


@pytest.fixture
def py_spy_here(tmp_path, monkeypatch):
    """py-spy on the PATH alone, and a process without privilege."""
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "py-spy"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(command.parent))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "elsewhere" / "python"))
    monkeypatch.setattr(py_spy, "_filtered", lambda: None)


@pytest.mark.parametrize(
    ("scope", "capabilities", "state"),
    [
        (None, "0000000000000000", "ok"),
        (0, "0000000000000000", "ok"),
        (1, "0000000000000000", "limited"),
        (2, "0000000000000000", "limited"),
        (1, "0000000000080000", "ok"),
        (2, "000001ffffffffff", "ok"),
        (3, "000001ffffffffff", "limited"),
    ],
)
def test_who_may_look_into_a_job(py_spy_here, tree, scope, capabilities, state):
    tree.write("proc/self/status", f"Name:\tpython\nCapEff:\t{capabilities}")
    if scope is not None:
        tree.write("proc/sys/kernel/yama/ptrace_scope", scope)
    check = py_spy.py_spy(tree.root)
    assert check.state == state
    assert (check.remedy is None) == (state == "ok")


def test_without_py_spy(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert py_spy.py_spy().state == "missing"


def test_a_seccomp_filter_is_told(py_spy_here, monkeypatch):
    monkeypatch.setattr(py_spy, "_filtered", lambda: "the filter bars it")
    check = py_spy.py_spy()
    assert (check.state, check.remedy) == (
        "limited",
        "start the container with --cap-add SYS_PTRACE",
    )


@pytest.mark.parametrize(
    ("scope", "invited", "may"),
    [(0, False, True), (1, False, False), (1, True, True), (2, True, False), (3, True, False)],
)
def test_a_process_that_names_who_may_look(py_spy_here, tree, scope, invited, may):
    """With PR_SET_PTRACER, as jobs do that dltune starts."""
    tree.write("proc/self/status", "Name:\tpython\nCapEff:\t0000000000000000")
    tree.write("proc/sys/kernel/yama/ptrace_scope", scope)
    command, words = py_spy.can_use_py_spy(invited=invited, root=tree.root)
    assert (command is not None) == may
    assert ("sysctl" in words) == (scope in (1, 2))
