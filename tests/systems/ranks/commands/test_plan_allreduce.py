"""`dltune plan allreduce` as a person meets it: exit codes, what is printed, what is written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import synthetic
import synthetic_ranks

from dltune.base import documents
from dltune.plan.plan import load_plan, new_plan
from dltune.schemas.plan import Prediction, Threads, Uniform
from dltune.schemas.profile import Profile
from dltune.systems.ranks.allreduce.section import AllreducePlan
from dltune.systems.ranks.horovod.schema import Horovod

MACHINE = synthetic.machine(2)


def dltune(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dltune", "plan", "allreduce", *map(str, arguments)],
        capture_output=True,
        text=True,
    )


def profiled(folder: Path, profile: Profile | None = None) -> Path:
    return write(folder / "profile.json", profile or synthetic_ranks.profile(MACHINE))


def reported(folder: Path, report: Horovod | None = None, *, name: str = "report.json") -> Path:
    return write(folder / name, report or synthetic_ranks.report(MACHINE))


def write(path: Path, document: msgspec.Struct) -> Path:
    path.write_bytes(msgspec.json.encode(document))
    return path


def refused(done: subprocess.CompletedProcess[str], *told: str) -> None:
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert any(line.startswith("dltune: ") for line in done.stderr.splitlines())
    for part in told:
        assert part in done.stderr


def methods(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.returncode == 0, done.stderr
    return [line.split()[0] for line in done.stdout.splitlines()[2:]]


def test_the_plan_stands_beside_the_profile(tmp_path: Path) -> None:
    report = synthetic_ranks.report(MACHINE)
    done = dltune(profiled(tmp_path), reported(tmp_path, report))
    assert methods(done)[:11] == [
        *(
            "original",
            "core-partition",
            "ordered-bins",
            "non-blocking",
            "global-sleep",
            "non-blocking+global-sleep",
            "yield",
            "rest",
            "non-blocking+rest",
        ),
        *("yield+rest", "knobs"),
    ]
    assert done.stdout.splitlines()[0] == "predicted step of the job by method"
    assert sum(line.endswith("planned") for line in done.stdout.splitlines()) == 1
    plan = load_plan(tmp_path / "plan.json")
    assert list(plan.sections) == ["allreduce"]
    assert plan.signatures == ("signature-train",)
    assert plan.sections["allreduce"].report == documents.digest(report)
    assert (plan.sections["allreduce"].ranks, plan.sections["allreduce"].local) == (2, 2)


def test_methods_that_were_asked_for_are_planned(tmp_path: Path) -> None:
    done = dltune(
        profiled(tmp_path),
        reported(tmp_path),
        "--methods",
        "core-partition,ordered-bins,non-blocking,global-sleep,knobs",
    )
    assert methods(done)[-1] == "core-partition+ordered-bins+non-blocking+global-sleep+knobs"
    assert "note: core-partition: all threads of a rank share its only core" in done.stderr
    section = load_plan(tmp_path / "plan.json").of(AllreducePlan)
    assert section is not None
    assert section.cores
    assert section.sleeps
    assert section.sleeps.between_tests
    assert section.sleeps.agree_every
    assert section.knobs
    assert not section.yield_when_idle
    (order,) = section.orders or ()
    assert order.shapes == tuple((1000, k + 1) for k in range(6))
    assert sum(bin_.bytes for bin_ in order.bins) == 4000 * sum(range(1, 7))


def test_one_method_alone(tmp_path: Path) -> None:
    done = dltune(profiled(tmp_path), reported(tmp_path), "--methods", "ordered-bins", "--explain")
    assert methods(done)[:2] == ["original", "ordered-bins"]
    assert "gradients in" in done.stdout
    assert "0: float32[1000,1] grad_0" in done.stdout
    section = load_plan(tmp_path / "plan.json").of(AllreducePlan)
    assert section is not None
    assert (section.cores, section.threads, section.sleeps, section.knobs) == (None,) * 4


def test_tacs_order_beside_that_of_the_thesis(tmp_path: Path) -> None:
    """The gradient that is there first makes way for one whose update is long."""
    profile = synthetic_ranks.profile(
        MACHINE, layers=2, elements=500_000, seconds=4e-3, updates={0: 0.02}
    )
    ranks = [synthetic_ranks.rank(k, controller="gloo") for k in range(2)]
    report = synthetic_ranks.report(MACHINE, ranks, timeline=synthetic_ranks.timeline(step=0.08))
    done = dltune(
        *(profiled(tmp_path, profile), reported(tmp_path, report)),
        *("--methods", "ordered-bins", "--order", "tac", "--explain"),
    )
    assert methods(done)[:3] == ["original", "tac-bins", "ordered-bins"]
    assert "cut: gradient 1 in 2" in done.stderr
    section = load_plan(tmp_path / "plan.json").sections["allreduce"]
    first, between, last = section.orders[0].bins
    assert (first.tensors, between.tensors, last.tensors) == ((1,), (0,), (1,))
    assert f"bin 2: {last.bytes} bytes, elements {last.elements[0]} to 999999 of" in done.stdout


def test_without_a_report_the_graph_still_gives_an_order(tmp_path: Path) -> None:
    done = dltune(
        profiled(tmp_path), "--ranks", "2", "--controller", "gloo", "--methods", "ordered-bins"
    )
    assert done.returncode == 0, done.stderr
    assert "no report" in done.stderr
    section = load_plan(tmp_path / "plan.json").of(AllreducePlan)
    assert section is not None
    assert section.orders
    assert section.report == ""


def test_json(tmp_path: Path) -> None:
    done = dltune(profiled(tmp_path), reported(tmp_path), "--json")
    assert done.returncode == 0, done.stderr
    section = json.loads(done.stdout)
    assert section["controller"] == "mpi"
    assert section["predictions"][0]["method"] == "original"


def test_into_a_plan_keeps_its_threads(tmp_path: Path) -> None:
    profile = synthetic_ranks.profile(MACHINE)
    predicted = (Prediction("uniform 2x1", 0.05, 1.0, 1.0),)
    threads = Threads("uniform 2x1", Uniform(2, 1), False, False, 0.0, (), predicted)
    signatures = tuple(step.signature for step in profile.steps)
    plan = new_plan(MACHINE, signatures=signatures, sections={"threads": threads})
    path = write(tmp_path / "mine.json", plan)
    done = dltune(
        profiled(tmp_path), reported(tmp_path), "--into", path, "--methods", "core-partition"
    )
    assert done.returncode == 0, done.stderr
    made = load_plan(path)
    assert made.sections["threads"] == threads
    assert made.sections["allreduce"].threads is not None
    assert (
        made.sections["allreduce"].threads.intra == 1
    )  # its two threads would not fit a rank's one core


def test_into_a_plan_for_something_else(tmp_path: Path) -> None:
    other = write(tmp_path / "other.json", new_plan(synthetic.machine(4)))
    refused(
        dltune(profiled(tmp_path), reported(tmp_path), "--into", other),
        "4 cores",
        "write a separate plan",
    )
    graphs = write(tmp_path / "graphs.json", new_plan(MACHINE, signatures=("else",)))
    refused(dltune(profiled(tmp_path), reported(tmp_path), "--into", graphs), "other graphs")


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("env", "export HOROVOD_CYCLE_TIME="),
        ("horovodrun-yaml", "controller: mpi"),
        ("rankfile", "rank 1=localhost slot=1"),
    ],
)
def test_emit(tmp_path: Path, kind: str, told: str) -> None:
    done = dltune(
        profiled(tmp_path),
        reported(tmp_path),
        "--emit",
        kind,
        "--methods",
        "core-partition,ordered-bins,knobs",
    )
    assert done.returncode == 0, done.stderr
    assert told in done.stdout
    assert "predicted" not in done.stdout


def test_the_fastest_measured_setting_is_planned(tmp_path: Path) -> None:
    def ran(name: str, step: float, **settings: str) -> Path:
        ranks = [synthetic_ranks.rank(k, settings=settings) for k in range(2)]
        timeline = synthetic_ranks.timeline(step=step)
        found = synthetic_ranks.report(MACHINE, ranks, timeline=timeline)
        return reported(tmp_path, found, name=name)

    spinning = ran("spinning.json", 0.058)
    yielding = ran("yielding.json", 0.044, OMPI_MCA_mpi_yield_when_idle="1")
    slow = ran("slow.json", 0.090, HOROVOD_CYCLE_TIME="20")
    options = [option for path in (slow, yielding, spinning) for option in ("--measured", path)]
    done = dltune(profiled(tmp_path), spinning, *options)
    assert done.returncode == 0, done.stderr
    assert (
        "44.0 ms with cycle time 1 ms, fusion threshold 128 MiB, yielding; 58.0 ms" in done.stderr
    )
    section = load_plan(tmp_path / "plan.json").of(AllreducePlan)
    assert section is not None
    assert section.yield_when_idle
    assert section.sleeps is None
    assert section.knobs is not None
    assert section.knobs.cycle_time == 1e-3


def test_ranks_that_ran_faster_bound_are_planned_so(tmp_path: Path) -> None:
    def ran(name: str, step: float, *, bound: bool) -> Path:
        ranks = [
            msgspec.structs.replace(
                synthetic_ranks.rank(k), bound=bound, cpus=(1 - k,) if bound else (0, 1)
            )
            for k in range(2)
        ]
        timeline = synthetic_ranks.timeline(step=step)
        return reported(
            tmp_path, synthetic_ranks.report(MACHINE, ranks, timeline=timeline), name=name
        )

    free, bound = ran("free.json", 0.058, bound=False), ran("bound.json", 0.050, bound=True)
    done = dltune(profiled(tmp_path), free, "--measured", free, "--measured", bound)
    assert done.returncode == 0, done.stderr
    assert "spinning, bound to cores; 58.0 ms" in done.stderr
    section = load_plan(tmp_path / "plan.json").of(AllreducePlan)
    assert section is not None
    assert [rank.compute for rank in section.cores or ()] == [(1,), (0,)]


def test_what_was_measured_must_compare(tmp_path: Path) -> None:
    profile, report = profiled(tmp_path), reported(tmp_path)
    refused(
        dltune(profile, report, "--measured", report), "no step times, because it has no timeline"
    )
    four = [synthetic_ranks.rank(k, size=4, local=4) for k in range(4)]
    timed = synthetic_ranks.report(MACHINE, four, timeline=synthetic_ranks.timeline())
    other = reported(tmp_path, timed, name="four.json")
    refused(
        dltune(profile, report, "--measured", other),
        "its job had 4 ranks, the job of the report has 2",
    )


def test_an_existing_plan_stays_unless_overwritten(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("mine")
    profile, report = profiled(tmp_path), reported(tmp_path)
    refused(dltune(profile, report), "plan.json already exists")
    assert (tmp_path / "plan.json").read_text() == "mine"
    assert dltune(profile, report, "--overwrite").returncode == 0


def test_a_refused_plan_leaves_nothing(tmp_path: Path) -> None:
    refused(
        dltune(profiled(tmp_path, synthetic.network(MACHINE, layers=2)), reported(tmp_path)),
        "no Horovod operations",
        "dltune profile -- horovodrun",
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["profile.json", "report.json"]


def test_what_does_not_fit_is_told(tmp_path: Path) -> None:
    profile, report = profiled(tmp_path), reported(tmp_path)
    refused(
        dltune(profile, report, "--ranks", "4"),
        "--ranks 4: ",
        "is of a job of 2 ranks",
        "of 4 ranks, or leave out",
    )
    refused(dltune(profile, report, "--local", "3"), "--local 3: more than the 2 ranks")
    refused(
        dltune(profile, report, "--controller", "gloo"),
        "--controller gloo: ",
        "is of a job with mpi",
    )
    refused(dltune(profile), "without a report", "--ranks N")
    refused(
        dltune(profile, "--ranks", "2", "--controller", "mpi", "--methods", "core-partition"),
        "needs a report",
    )
    refused(
        dltune(profile, report, "--methods", "topology"),
        "unknown method 'topology'",
        "choose from core-partition, ",
    )
    refused(
        dltune(profile, report, "--methods", "non-blocking,yield"),
        "yield cannot be combined with non-blocking",
    )
    refused(
        dltune(profile, report, "--methods", "global-sleep,rest"),
        "global-sleep cannot be combined with rest",
    )
    refused(dltune(profile, report, "-o", profile), "is an input of the plan")
    refused(dltune(profile, report, "-o", "a", "--into", "b"), "both name the file")
    refused(
        dltune(profile, report, "--methods", "ordered-bins", "--emit", "rankfile"),
        "this plan assigns none",
    )
    assert not (tmp_path / "plan.json").exists()


def test_a_report_of_another_machine(tmp_path: Path) -> None:
    report = reported(tmp_path, synthetic_ranks.report(synthetic.machine(4, name="elsewhere")))
    refused(dltune(profiled(tmp_path), report), "made on elsewhere", "not the same machine")


def test_gloo_has_nothing_to_sleep_through(tmp_path: Path) -> None:
    ranks = [synthetic_ranks.rank(k, controller="gloo") for k in range(2)]
    report = reported(tmp_path, synthetic_ranks.report(MACHINE, ranks))
    profile = profiled(tmp_path)
    for method in ("non-blocking", "global-sleep", "yield", "rest"):
        refused(
            dltune(profile, report, "--methods", f"core-partition,{method}"),
            "already block in poll()",
        )
    done = dltune(profile, report)
    assert done.returncode == 0
    assert "already block in poll()" in done.stderr


def test_nodes_with_different_numbers_of_ranks(tmp_path: Path) -> None:
    ranks = [synthetic_ranks.rank(k, size=3) for k in range(3)]
    ranks[2] = msgspec.structs.replace(ranks[2], local_rank=0, local_size=1)
    report = reported(tmp_path, synthetic_ranks.report(MACHINE, ranks))
    refused(dltune(profiled(tmp_path), report), "different numbers of ranks, 1 and 2")


def test_a_report_without_ranks(tmp_path: Path) -> None:
    report = reported(tmp_path, synthetic_ranks.report(MACHINE, []))
    refused(dltune(profiled(tmp_path), report), "the report has no rank")


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    profile, report = profiled(tmp_path), reported(tmp_path)
    refused(dltune(tmp_path / "none.json", report), "cannot read")
    refused(dltune(profile, tmp_path / "none.json"), "cannot read")
    refused(dltune(report, report), "is a dltune.horovod file")
    newer = tmp_path / "newer.json"
    newer.write_bytes(report.read_bytes().replace(b"dltune.horovod/1", b"dltune.horovod/3"))
    refused(dltune(profile, newer), "dltune.horovod/3", "upgrade dltune")
    short = tmp_path / "short.json"
    short.write_bytes(report.read_bytes()[:200])
    refused(dltune(profile, short), "short.json")
