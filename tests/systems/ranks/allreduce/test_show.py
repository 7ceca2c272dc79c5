"""Exports, as the installed launchers read them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import synthetic

from dltune.base.errors import UsageError
from dltune.schemas.plan import Uniform
from dltune.system import topology
from dltune.systems.ranks.allreduce.planner import PLANNER
from dltune.systems.ranks.allreduce.section import (
    AllreducePlan,
    Bin,
    Knobs,
    Order,
    RankCores,
    Sleeps,
)
from dltune.systems.ranks.allreduce.show import export

# in one write, which mpirun passes on whole
PRINT_AFFINITY = (
    "import os; line = (os.environ['OMPI_COMM_WORLD_RANK'], sorted(os.sched_getaffinity(0)));"
    "os.write(1, b'%s %s\\n' % tuple(str(part).encode() for part in line))"
)


def plan(*, ranks: int = 2, cores: tuple[RankCores, ...] | None = None) -> AllreducePlan:
    own = tuple(RankCores((core,), (core,), (core,), (core,)) for core in (1, 0))
    return AllreducePlan(
        report="",
        controller="mpi",
        ranks=ranks,
        local=2,
        cores=cores or own,
        threads=Uniform(1, 2),
        orders=(Order(((4,),), ("float32",), (Bin((0,), 16),)),),
        sleeps=Sleeps(30e-6, None),
        knobs=Knobs(2.5e-3, 64 << 20, 1024),
        yield_when_idle=True,
        predictions=(),
        reasons=(),
    )


def bare() -> AllreducePlan:
    return AllreducePlan("", "gloo", 2, 2, None, None, None, None, None, False, (), ())


def test_horovodrun_takes_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = pytest.importorskip("horovod.runner.launch")
    parser = pytest.importorskip("horovod.runner.common.util.config_parser")
    path = tmp_path / "horovod.yaml"
    path.write_text(export("horovodrun-yaml", plan(), synthetic.machine(2)))
    arguments = ["horovodrun", "-np", "2", "--config-file", str(path), "python", "train.py"]
    monkeypatch.setattr(sys, "argv", arguments)
    args = launch.parse_args()
    assert args.use_mpi
    environment: dict[str, str] = {}
    parser.set_env_from_args(environment, args)
    assert float(environment["HOROVOD_CYCLE_TIME"]) == 2.5
    assert int(environment["HOROVOD_FUSION_THRESHOLD"]) == 64 << 20
    assert environment["HOROVOD_CACHE_CAPACITY"] == "1024"
    assert "HOROVOD_THREAD_AFFINITY" not in environment  # one number cannot serve two ranks


def test_a_lone_rank_s_background_thread_stands_in_horovodrun_s_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = pytest.importorskip("horovod.runner.launch")
    path = tmp_path / "horovod.yaml"
    alone = msgspec.structs.replace(plan(), local=1, cores=(RankCores((1,), (1,), (0,), (0,)),))
    path.write_text(export("horovodrun-yaml", alone, synthetic.machine(2)))
    arguments = ["horovodrun", "-np", "2", "--config-file", str(path), "python", "train.py"]
    monkeypatch.setattr(sys, "argv", arguments)
    assert launch.parse_args().thread_affinity == 1


def test_mpirun_binds_by_the_rankfile(tmp_path: Path) -> None:
    mpirun = shutil.which("mpirun", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    machine = topology.local()
    if mpirun is None or len(machine.cores) < 2:
        pytest.skip("needs mpirun and two cores")
    path = tmp_path / "ranks"
    path.write_text(export("rankfile", plan(), machine))
    output = tmp_path / "output"
    options = ["-np", "2", "--oversubscribe", "--rankfile", str(path)]
    options += ["--mca", "rmaps_rank_file_physical", "1"]
    with open(output, "w") as file:
        done = subprocess.run(
            [mpirun, *options, sys.executable, "-c", PRINT_AFFINITY],
            stdout=file,
            stderr=subprocess.STDOUT,
            timeout=240,
            env={
                **os.environ,
                "OMPI_ALLOW_RUN_AS_ROOT": "1",
                "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            },
        )
    told = output.read_text()
    assert done.returncode == 0, told
    first, second = (sorted(machine.cores[core].cpus) for core in (1, 0))
    assert set(told.splitlines()) == {f"0 {first}", f"1 {second}"}


def test_a_rankfile_for_several_nodes() -> None:
    there = synthetic.machine(4, hardware=2)
    cores = (RankCores((1,), (1,), (0,), (0, 1)), RankCores((3,), (3,), (2,), (2, 3)))
    told = export("rankfile", plan(ranks=4, cores=cores), there, ["ash", "elm"])
    assert [line for line in told.splitlines() if line.startswith("rank")] == [
        "rank 0=ash slot=0-1,4-5",
        "rank 1=ash slot=2-3,6-7",
        "rank 2=elm slot=0-1,4-5",
        "rank 3=elm slot=2-3,6-7",
    ]
    assert "rank 3=+n1 slot=2-3,6-7" in export("rankfile", plan(ranks=4, cores=cores), there)


def test_a_shell_takes_the_exports(tmp_path: Path) -> None:
    path = tmp_path / "exports"
    path.write_text(export("env", plan(), synthetic.machine(2)))
    done = subprocess.run(
        ["sh", "-c", f". {path}; env"], capture_output=True, text=True, check=True, env={}
    )
    told = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert told["HOROVOD_CYCLE_TIME"] == "2.5"
    assert told["HOROVOD_THREAD_AFFINITY"] == "1,0"
    assert told["TF_NUM_INTRAOP_THREADS"] == told["OMP_NUM_THREADS"] == "1"
    assert told["TF_NUM_INTEROP_THREADS"] == "2"
    assert told["OMPI_MCA_mpi_yield_when_idle"] == "1"
    assert told["OMPI_MCA_hwloc_base_binding_policy"] == "none"


@pytest.mark.parametrize("kind", PLANNER.formats)
def test_what_needs_dltune_is_told(kind: str) -> None:
    told = export(kind, plan(), synthetic.machine(2)).splitlines()[0]
    assert "# not included: bins, sleeps, cores of single threads" in told


def test_a_plan_without_cores_has_no_rankfile() -> None:
    with pytest.raises(UsageError, match="this plan assigns none"):
        export("rankfile", bare(), synthetic.machine(2))
    assert export("horovodrun-yaml", bare(), synthetic.machine(2)) == "controller: gloo\n"
    assert export("env", bare(), synthetic.machine(2)) == "\n"
