"""A job as one process for each device of the plan, and what came of it in each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from dltune.base.errors import UsageError
from dltune.base.formatting import counted
from dltune.extensions import Hook
from dltune.frameworks.pytorch import INJECTED as TORCH
from dltune.job import protocol, ranks
from dltune.job.failures import last_words
from dltune.job.launch import Event, Job, require_executable
from dltune.plan.enforcement import Enforcement, Outcome, Run
from dltune.systems.parallelism import INJECTED
from dltune.systems.parallelism.expressed import expressed
from dltune.systems.parallelism.hosts import interface, meeting
from dltune.systems.parallelism.jax import gradients
from dltune.systems.parallelism.schemas.strategy import Parallelism

_SHOWN = 3


class Taken(msgspec.Struct, frozen=True):
    """The outcome of the section. `consumer`: the kind that took it, by which `framework`;
    `weights` and `divided`: of the job's models, in all and over devices; `outputs`: operators
    whose outputs were divided as planned. `unknown`: weights that are no operator's."""

    ranks: int
    consumer: str
    framework: str
    weights: int
    divided: int
    outputs: int
    unknown: tuple[str, ...] = ()


class EnforcedParallelism(Enforcement):
    """The section on parallelism in one job. Raises UsageError when no job can take it."""

    inside = True

    def __init__(self, section: Parallelism, run: Run) -> None:
        self._plan = expressed(section)
        self._count = len(section.devices)
        self._meeting = meeting(section)
        self._run = run
        self._plain = run.environment.get("DLTUNE_DISABLE") == "1"
        if self._plain:
            self.announced = [
                "DLTUNE_DISABLE=1 is set: the job runs as one process, without the plan"
            ]
        self._folder = Path()
        self._heard: dict[int, protocol.Parallel] = {}
        self._cause: str | None = None

    def intent(self) -> Iterator[str]:
        shape = " x ".join(map(str, self._plan["mesh"]))
        here = len(self._meeting.here)
        of = f"{here} of {self._count}" if here < self._count else f"{here}"
        yield f"{of} processes, one per device of a mesh of shape {shape}"

    def command(self, given: Sequence[str]) -> Sequence[str]:
        """Raises UsageError when it cannot be started."""
        if self._plain or not given:
            return given
        require_executable(given[0])
        self._require_gradients(given[0])
        return ranks.started(self._meeting.here, self._count, given)

    def _require_gradients(self, program: str) -> None:
        """Raises UsageError when the job's JAX gives other gradients than those of one device."""
        if not (pairs := gradients.suspects(self._plan)):
            return
        if not Path(program).name.startswith("python"):
            self._run.say(
                "the plan's gradients are not checked: the command is not a Python interpreter"
            )
            return
        self._run.say("checking the gradients of convolutions that XLA can compile wrongly")
        try:
            gradients.require_same(self._plan, pairs, program)
        except UsageError as error:
            if not self._run.partial:
                raise
            self._run.say(str(error))

    def environment(self, base: Mapping[str, str], folder: Path) -> Mapping[str, str]:
        self._folder = folder
        alike = {} if "PYTHONHASHSEED" in base else {"PYTHONHASHSEED": str(self._meeting.seed)}
        return {ranks.FOLDER: str(folder), **alike}

    def answer(self, python: protocol.Python) -> Mapping[str, object]:
        if ranks.RANK not in python.environment:
            return {}
        rank = int(python.environment[ranks.RANK])
        orders = {
            "plan": self._plan,
            "address": self._meeting.address,
            "rank": rank,
            "device": self._meeting.here.index(rank),
            "host": self._meeting.hosts[rank],
            "interface": interface(self._meeting.hosts[rank]),
            "ranks": self._count,
            "seed": self._meeting.seed,
            "partial": self._run.partial,
        }
        # they seed Python's random numbers, and so wait for no import
        hooks = (
            Hook("_dltune_parallel", (str(INJECTED),)),
            Hook("_dltune_torch_parallel", (str(INJECTED), str(TORCH))),
        )
        adapters = [hook.under(orders) for hook in hooks]  # whichever the job imports
        return {**self._run.shares.answer(python), "adapters": adapters}

    def hear(self, job: Job, event: Event) -> None:
        """Raises UsageError when the job cannot take the plan."""
        message = event.message
        if not isinstance(message, protocol.Parallel):
            return
        if message.fault:
            raise UsageError(message.fault, remedy=message.remedy)
        self._heard[message.rank] = message

    def ended(self, exit_code: int) -> Outcome | None:
        """Raises DltuneError when the job has not taken the plan."""
        if self._plain:
            return None
        if failed := ranks.first_failed(self._folder):
            rank, code = failed
            words = last_words(ranks.log(self._folder, rank), f"rank {rank}") if rank else ""
            self._cause = f"rank {rank} ended with exit code {code}" + (f"; {words}" * bool(words))
        if exit_code:
            return None  # the reason of the failure is reported instead
        self._require_taken()
        one = next(iter(self._heard.values()))
        taken = Taken(
            *(self._count, one.consumer, one.framework, one.weights, one.divided, one.outputs),
            tuple(one.unknown),
        )
        return Outcome(taken, [*_sentences(taken)])

    def cause(self) -> str | None:
        return self._cause

    def _require_taken(self) -> None:
        """Raises UsageError unless every rank has."""
        if len(self._heard) < len(self._meeting.here):
            whom = f"not all of {self._count} ranks" if self._heard else "no process of the job"
            raise UsageError(
                f"{whom} imported JAX or called a PyTorch model, so the plan had no effect",
                remedy="use plans with a section parallelism only for jobs on JAX, Keras with JAX, "
                "or PyTorch",
            )
        one = next(iter(self._heard.values()))
        if not one.consumer:
            raise UsageError(
                "the job uses JAX without Keras and did not import the file that divides its "
                "arrays, so each rank computed the whole model",
                remedy="write that file with dltune plan parallelism --emit jax, and import it in "
                "the job",
            )
        if one.ended and one.unmet:
            more = f" and {len(one.unmet) - 1} more" if one.unmet[1:] else ""
            raise UsageError(
                "the plan divides weights that the job's models do not have: "
                f"{one.unmet[0]!r}{more}",
                remedy="plan again for the current network",
            )


def _sentences(taken: Taken) -> Iterator[str]:
    processes = f"{taken.ranks} processes on {taken.framework}"
    if taken.consumer == "jax":
        yield f"{processes}, divided by the emitted file"
        return
    yield (
        f"{processes}: {taken.divided} of {counted(taken.weights, 'weight')} and the outputs of "
        f"{counted(taken.outputs, 'operator')} divided as planned"
    )
    if taken.unknown:
        more = len(taken.unknown) - _SHOWN
        names = ", ".join(taken.unknown[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
        yield f"not divided, because they belong to no operator of the plan: {names}"
