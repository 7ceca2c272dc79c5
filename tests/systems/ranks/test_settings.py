"""Settings of jobs of several ranks: what is tried where."""

from __future__ import annotations

import sys

import pytest
import synthetic

from dltune.base.errors import UsageError
from dltune.plan.settings.choices import Applied, applied, means_of, set_by_user
from dltune.plan.settings.setting import Circumstances, Means
from dltune.plan.settings.space import by_name
from dltune.schemas.machine import SCHEMA, Core, Machine
from dltune.schemas.settings import Choice, SettingsPlan

PLAIN = Machine(SCHEMA, "plain", tuple(Core((i,), 0, 0, 0) for i in range(4)))
SOCKETS = Machine(SCHEMA, "two", tuple(Core((i,), i // 4, i // 4, i // 4) for i in range(8)))
MARKED = ("horovodrun", "-np", "{ranks:2}", "python", "train.py", "{batch:48}")
GLOO = ("horovodrun", "--gloo", "-np", "2", "python", "train.py")


def here(machine: Machine = PLAIN, job=("python", "train.py"), **environment: str) -> Circumstances:
    return Circumstances(machine, job, environment)


def test_ranks_are_for_commands_that_say_what_changes_with_them():
    ranks = by_name("ranks")
    assert "{batch:256}" in str(ranks.unfit(here()))
    where = here(SOCKETS, MARKED)
    assert ranks.values(where) == ("1", "4", "8")  # not 2, its own
    chosen = means_of([Choice("ranks", "4"), Choice("horovod", "gloo")], where)
    assert Applied((), chosen).command(where.command) == (
        *("horovodrun", "--gloo", "-np", "4", "python", "train.py", "12"),
    )
    with pytest.raises(UsageError, match="not a multiple"):
        ranks.means("5", where)


def test_buckets_are_for_ranks():
    bucket = by_name("ddp_bucket")
    assert "torchrun" in str(bucket.unfit(here()))
    assert bucket.unfit(here(WORLD_SIZE="2")) is None
    where = here(PLAIN, ("env/bin/torchrun", "train.py"))
    assert bucket.unfit(where) is None
    assert bucket.means("50MiB", where).hooks == {"ddp_bucket": "50MiB"}
    for wrong in ("0MiB", "5", "5GiB", "MiB"):
        with pytest.raises(UsageError, match="not a size in whole MiB"):
            bucket.means(wrong, where)


def test_the_launcher_that_the_user_chose_stays():
    assert set_by_user(by_name("horovod"), here(PLAIN, GLOO)) == "--gloo in the command"
    assert by_name("horovod").unfit(here()) is not None
    assert by_name("mpi_yield").unfit(here(PLAIN, GLOO)) is not None


@pytest.mark.parametrize(
    ("choice", "complaint"),
    [
        (("ranks", "2"), "does not mark its number of ranks"),
        (("horovod", "gloo"), "horovodrun"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_or_left_with_partial(choice, complaint):
    machine, job = synthetic.machine(4), (sys.executable, "train.py")
    choices = (Choice(*choice), Choice("batch_norm", "fused"))
    both = SettingsPlan(job, choices, "rounding", None, None, (), (), 1.0, None)
    with pytest.raises(UsageError, match=complaint):
        applied(both, machine, job, {})
    around = applied(both, machine, job, {}, partial=True)
    assert around.means == Means(hooks={"batch_norm": "fused"})
    assert [complaint in sentence for sentence in around.left] == [True]
