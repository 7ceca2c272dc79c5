"""Every set of sections in one plan: what a job's processes are told, and in which order.

The sections are those of core and of the systems that are installed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import pytest
import synthetic
from installed import SYSTEMS

from dltune.job import protocol
from dltune.plan.plan import Composition, new_plan
from dltune.schemas.plan import OpPlan, Prediction, Threads, Uniform
from dltune.schemas.settings import Choice, SettingsPlan

HERE = synthetic.machine(4)
THREADS = Threads(
    "per-type",
    Uniform(4, 3),
    False,
    False,
    0.0,
    (OpPlan("Conv2D", 2, "spread", 1.0, 2.0),),
    (Prediction("per-type", 1.0, 1.0, 1.0),),
)
CHOSEN = (Choice("threads", "2x1"), Choice("onednn", "off"), Choice("batch_norm", "fused"))
SETTINGS = SettingsPlan(("python",), CHOSEN, "rounding", None, None, (), (), 1.0, None)
SECTIONS: dict[str, Any] = {"settings": SETTINGS, "threads": THREADS}
if "ranks" in SYSTEMS:
    from dltune.systems.ranks.allreduce.section import AllreducePlan, RankCores

    CORES = (RankCores((0,), (0,), (1,), (0, 1)), RankCores((2,), (2,), (3,), (2, 3)))
    SECTIONS["allreduce"] = AllreducePlan(
        "", "gloo", 2, 2, CORES, Uniform(1, 2), None, None, None, False, (), ()
    )
if "transfers" in SYSTEMS:
    from dltune.systems.transfers.section import Receiver, Transfer, Transfers

    SENT = (Transfer("b", "/job:ps/task:0", 8, None), Transfer("a", "/job:ps/task:0", 4, None))
    SECTIONS["transfers"] = Transfers("tic", (Receiver("/job:worker/task:0", "a", SENT),))
if "lmdb" in SYSTEMS:
    from dltune.systems.lmdb.section import FilePlan, IoPlan

    FILES = (FilePlan("/data.mdb", "strided", None, 4096, "ahead"),)
    SECTIONS["io"] = IoPlan("", FILES, ())
SETS = [
    names
    for count in range(1, len(SECTIONS) + 1)
    for names in itertools.combinations(SECTIONS, count)
]


def composed(names: Iterable[str], said: list[str] | None = None) -> Composition:
    plan = new_plan(HERE, signatures=("a",), sections={name: SECTIONS[name] for name in names})
    said = [] if said is None else said
    return Composition(plan, HERE, ("python",), {}, partial=False, say=said.append)


def rank(number: int) -> protocol.Python:
    variables = {f"HOROVOD_{name}": str(number) for name in ("RANK", "LOCAL_RANK")}
    variables |= {f"HOROVOD_{name}": "2" for name in ("SIZE", "LOCAL_SIZE")}
    variables["HOROVOD_CONTROLLER"] = "gloo"
    return protocol.Python(number + 1, ["python"], "3.11", variables)


class Plugin:
    """A process that has just said hello."""

    pid = 2
    hello = protocol.Plugin(2, "2.21.0", "git", "3.11")


@pytest.mark.parametrize("names", SETS)
def test_each_section_tells_an_interpreter_its_part(names: tuple[str, ...]) -> None:
    there = composed(names)
    told = there.answer(rank(1))
    assert told["plugin"] == bool(set(names) - {"io"})
    assert ("horovod" in told) == ("allreduce" in names)
    assert told.get("settings") == ({"batch_norm": "fused"} if "settings" in names else None)
    if "allreduce" in names:  # its cores go before an even share
        assert told["cpus"] == [3]
    elif "threads" in names:
        assert told["cpus"] == [2, 3]
    else:
        assert "cpus" not in told


@pytest.mark.parametrize("names", [n for n in SETS if set(n) - {"io", "transfers"}])
def test_pools_are_those_of_the_section_that_is_nearest_to_a_rank(names: tuple[str, ...]) -> None:
    there = composed(names)
    there.answer(rank(1))
    lines = there.greet(Plugin())  # type: ignore[arg-type]
    (pools,) = (line.split("\t")[1:] for line in lines if line.startswith("uniform\t"))
    if "allreduce" in names:
        assert pools == ["1", "2"]
    elif "threads" in names:
        assert pools == ["2", "3"]  # four threads on its two cores
    else:
        assert pools == ["2", "1"]
    cores = 1 if "allreduce" in names else 2 if "threads" in names else 4
    assert sum(line.startswith("core\t") for line in lines) == cores
    assert ("discover\t1" in lines) == ("threads" in names)


@pytest.mark.parametrize("names", [n for n in SETS if "transfers" in n])
def test_every_process_is_told_the_order_of_transfers(names: tuple[str, ...]) -> None:
    there = composed(names)
    there.answer(rank(1))
    lines = there.greet(Plugin())  # type: ignore[arg-type]
    assert "window\t1048576" in lines
    sends = [line.split("\t")[1:] for line in lines if line.startswith("send\t")]
    assert sends == [["/job:worker/task:0", "b"], ["/job:worker/task:0", "a"]]
    # which steps are recorded is said once, and by threads where there is such a section
    assert any(line.startswith("alternate\t") for line in lines) == ("threads" not in names)
    if set(names) <= {"io", "transfers"}:
        assert not any(line.startswith("uniform\t") for line in lines)


@pytest.mark.parametrize("names", SETS)
def test_a_dry_run_tells_of_each(names: tuple[str, ...]) -> None:
    there = composed(names)
    text = "\n".join(str(one) for one in there.intent())
    assert ("per-type: the framework's thread pools" in text) == ("threads" in names)
    assert ("Horovod: for 2 ranks" in text) == ("allreduce" in names)
    assert ("/data.mdb: read-ahead hints, 4.0 KiB ahead" in text) == ("io" in names)
    announced = "\n".join(there.announced())
    assert ("2 tensors in the order tic" in text) == ("transfers" in names)
    assert ("onednn=off" in announced) == ("settings" in names)
    placed = {"allreduce", "threads"} & set(names)
    if "settings" in names:
        assert ("threads=2x1: another section of the plan" in announced) == bool(placed)
