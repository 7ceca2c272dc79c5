"""The diagnosis document: the causes that slow a job down. `dltune diagnose -o FILE.json` writes
it.

Times are in seconds and sizes in bytes; *cores* are CPU seconds per second. A null value could not
be observed; `unseen` gives the reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Annotated, Literal

import msgspec

from dltune.base import documents
from dltune.base.documents import AMOUNT, FILLED, LABEL, SHARE, at_least, repeated
from dltune.schemas.machine import Machine
from dltune.schemas.profile import Line, Ratio
from dltune.schemas.settings import Choice

# measured in this job; computed from measurements of this job; known from other jobs
Confidence = Literal["measured", "modelled", "rule"]


class Gain(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The expected saving of a fix, as a share of the steps' wall time.

    `low`, `high`: lowest and highest expected saving.
    """

    low: Annotated[float, SHARE]
    high: Annotated[float, SHARE]

    def relation_faults(self) -> Iterator[str]:
        yield from at_least(self.low, "its low").of("", self, "high")


class Finding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cause of slowness, with its evidence, its cost and its fix.

    `cause`: name of the rule, as the reference lists it.
    `title`: the problem in one line.
    `evidence`: measured values.
    `fix`: a command, a setting or a change of the script; null if nothing has to be done.
    `seconds`: cost per step, in seconds; null if unknown, or not per step.
    `share`: cost as a share of the job's time; null if unknown.
    `gain`: expected gain of the fix.
    `confidence`: how the gain is known: `measured` in this job, `modelled` from measurements of
      this job, or a `rule` known from other jobs.
    `apply`: settings that a plan of `dltune diagnose --plan` applies.
    `try_next`: settings that `dltune tune` tries first.
    """

    cause: Annotated[str, LABEL, FILLED] = ""  # set by the rule
    title: Annotated[str, FILLED]
    evidence: str
    fix: str | None = None
    seconds: Annotated[float | None, AMOUNT] = None
    share: Annotated[float | None, SHARE] = None
    gain: Gain | None = None
    confidence: Confidence = "rule"
    apply: tuple[Choice, ...] = ()
    try_next: tuple[str, ...] = ()


# what a main thread of Python is at
Activity = Literal[
    "step",  # its graph runs
    "tracing",  # a graph is traced, or compiled
    "input",  # it waits for the next batch
    "queue",  # or for what another thread or process of the job puts into a queue
    "reading",  # it takes figures out of tensors
    "eager",  # it runs a single op
    "saving",
    "validation",
    "fit",  # Keras prepares and ends a step
    "call",  # a step is called, before or after its graph
    "python",  # anything else
]


class Share(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Share of an activity of the main thread.

    `activity`: `step`: a graph runs; `tracing`: a graph is traced or compiled; `input`: waits for
      the next batch; `queue`: waits for another thread or process of the job; `reading`: reads
      values of tensors; `eager`: runs a single op; `saving`; `validation`; `fit`: Keras prepares or
      ends a step; `call`: a step is called, before or after its graph; `python`: anything else.
    `share`: share of the samples.
    `lines`: lines of the job's code, the most frequent first, each with its share of all samples.
    """

    activity: Activity
    share: Annotated[float, SHARE]
    lines: tuple[Line, ...]


class Python(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Python samples of the process that trains.

    `pid`: process.
    `looks`: number of samples.
    `shares`: activities of the main thread; they add up to 1.
    `generator`: share of the samples in which another thread ran Python for the input pipeline.
    `generator_lines`: lines of that code.
    """

    pid: int
    looks: int
    shares: tuple[Share, ...]
    generator: Annotated[float, SHARE]
    generator_lines: tuple[Line, ...]


class Process(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A process of the job.

    `pid`, `parent`: process and parent process.
    `command`: command line.
    `seconds`: duration of the observation.
    `cpu`: cores used.
    `kernel`: part of `cpu` spent in the kernel.
    `queued`: cores that its threads were ready for and did not get.
    `threads`: number of threads.
    `cpus`: CPUs that any of its threads can run on.
    `ranks`: ranks of the job on this node, as the launcher reports; null without a launcher.
    `framework`: framework that the process has loaded.
    `intra`, `inter`: the framework's thread settings; null if unknown.
    `faults`: minor page faults per second.
    `resident`: bytes in memory at the end, without files.
    `growth`: growth of `resident` in bytes per second; null if the observation was too short or the
      process has ended.
    """

    pid: int
    command: str
    seconds: Annotated[float, AMOUNT]
    cpu: Annotated[float, AMOUNT]
    kernel: Annotated[float, AMOUNT]
    queued: Annotated[float | None, AMOUNT]
    threads: int
    cpus: tuple[int, ...]
    ranks: int | None
    intra: Annotated[int | None, at_least(1)]
    inter: Annotated[int | None, at_least(1)]
    faults: Annotated[float, AMOUNT]
    resident: Annotated[int, AMOUNT]
    growth: float | None
    framework: str | None = None
    parent: int | None = None

    @property
    def waited(self) -> float:
        """Of the CPU time that its threads wanted, the share that they did not have."""
        wanted = self.cpu + (self.queued or 0.0)
        return (self.queued or 0.0) / wanted if wanted > 0 else 0.0


class Neighbour(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A process that does not belong to the job.

    `pid`: process.
    `command`: command line.
    `cpu`: cores used.
    """

    pid: int
    command: str
    cpu: float


class Host(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The host during the observation.

    `cpus`: CPUs that a job can have here if nothing restricts it.
    `online`: number of CPUs of the machine.
    `quota`: lowest CPU time limit of the job, in cores; null without a limit.
    `throttled`: share of the time in which the limit stopped the job.
    `others`: cores that other processes used, of those that the job can run on.
    `neighbours`: the processes that used most of them.
    `stolen`: cores that the hypervisor gave to other machines.
    `memory_limit`: memory limit of the job's control group.
    `reclaims`: number of times per second that the control group reached its limit.
    `available`: bytes of memory that are still available.
    `hyperthreads`: CPUs of each core that has several.
    """

    cpus: tuple[int, ...]
    online: int
    quota: Annotated[float | None, AMOUNT]
    throttled: Annotated[float | None, SHARE]
    others: Annotated[float, AMOUNT]
    neighbours: tuple[Neighbour, ...]
    stolen: Annotated[float, AMOUNT]
    memory_limit: Annotated[int | None, AMOUNT]
    reclaims: float
    available: int
    hyperthreads: tuple[tuple[int, ...], ...] = ()

    def cores(self, cpus: Iterable[int]) -> int:
        """How many cores so many CPUs are of."""
        core = {cpu: group[0] for group in self.hyperthreads for cpu in group}
        return len({core.get(cpu, cpu) for cpu in cpus})


class Graphs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Graphs and steps of the process that trains.

    `traced`: graphs created during the observation.
    `once`: those that ran at most once.
    `again`: graphs created for the function with the most graphs.
    `eager`: seconds of ops that ran one by one.
    `waited`: part of `eager` spent waiting for input; null if not counted.
    `compilations`: new sets of input shapes for which XLA compiled a cluster.
    `compiling`: seconds of these compilations.
    `steps`: completed steps of PyTorch optimizers.
    `denormal_looks`: samples that checked for denormal numbers.
    `denormal`: samples in which the main thread had computed with denormal numbers since the sample
      before.
    `flushed`: step time with denormal numbers treated as zero, divided by the step time before;
      null if not tried.
    `period`: mean time from one step to the next while nothing is recorded; null if unknown.
    """

    traced: int
    once: int
    eager: float
    again: int = 0
    compilations: int = 0
    compiling: float = 0.0
    steps: int = 0
    denormal_looks: int = 0
    denormal: int = 0
    flushed: Ratio | None = None
    waited: float | None = None
    period: float | None = None


class Observation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Observation of a job under its own settings.

    `seconds`: duration.
    `host`: the host.
    `processes`: processes of the job.
    `python`: Python samples; null if Python was not observed.
    `graphs`: graphs and steps; null if unknown.
    `cost`: share of one CPU that the observation used.
    `unseen`: things that could not be observed, with the reason.
    """

    seconds: Annotated[float, AMOUNT]
    host: Host
    processes: tuple[Process, ...]
    python: Python | None
    graphs: Graphs | None
    cost: Annotated[float, AMOUNT]
    unseen: tuple[str, ...]

    @property
    def disturbed(self) -> float:
        """The share of its cores that others had."""
        taken = self.host.others / self.cores + self.host.stolen / self.host.online
        return min(1.0, taken)

    @property
    def cores(self) -> int:
        """The CPUs that any process of the job may run on."""
        allowed = {cpu for one in self.processes for cpu in one.cpus}
        return max(1, len(allowed or self.host.cpus))

    @property
    def main(self) -> Process | None:
        """The process that trains, or works most."""
        trains = [one for one in self.processes if one.intra is not None]
        return max(trains or self.processes, key=lambda one: one.cpu, default=None)

    def room(self, process: Process) -> float:
        """The CPUs that a process may run on, or as many as the quota pays for."""
        return min(len(process.cpus), self.host.quota or math.inf)

    def idle(self, process: Process, *others: Process) -> float:
        """The share of them that it did not use, nor did `others`; 0 where they are not known."""
        used = sum(one.cpu for one in (process, *others))
        return max(0.0, 1 - used / self.room(process)) if process.cpus else 0.0

    def descendants(self, process: Process) -> list[Process]:
        """What it has started, and what these have; all others where no parents were noted."""
        if all(one.parent is None for one in self.processes):
            return [one for one in self.processes if one is not process]
        below: set[int | None] = {process.pid}
        while new := {one.pid for one in self.processes if one.parent in below} - below:
            below |= new
        return [one for one in self.processes if one.pid in below and one is not process]

    def relation_faults(self) -> Iterator[str]:
        yield from repeated("processes", "pid", (process.pid for process in self.processes))


SCHEMA = "dltune.diagnosis/1"


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The step time and its limit.

    `seconds`: median time of a round of the steps while ops are not recorded.
    `limit`: time that the ops would need if all cores worked on them all the time, computed from
      their single times; null if ops were not measured.
    `cores`: number of cores in the limit.
    """

    seconds: Annotated[float, AMOUNT]
    limit: Annotated[float | None, AMOUNT]
    cores: int


class Diagnosis(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A diagnosis.

    `subject`: the job's command, `pid N`, or the files that were read.
    `seconds`: duration of the observation.
    `step`: step time; null if no step was observed.
    `no_step`: reason why no step was observed.
    `healthy`: true if steps and Python were observed to the end and no finding costs 5 % of the
      time or more.
    `findings`: findings in order of cost.
    `observation`: the job under its own settings; null for a diagnosis of files.
    `unseen`: things that could not be observed, with the reason.
    `machine`: machine that the job ran on; null if unknown.
    """

    schema: str
    created: str
    dltune: str
    subject: str
    seconds: Annotated[float, AMOUNT]
    step: Step | None
    no_step: str | None
    healthy: bool
    findings: tuple[Finding, ...]
    observation: Observation | None
    unseen: tuple[str, ...]
    partial: str | None = None
    machine: Machine | None = None


load = documents.reader(Diagnosis, SCHEMA)
