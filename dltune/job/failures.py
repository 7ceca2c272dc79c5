"""Failures of a job: why it ran no usable step, and unreported processes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from dltune.base.errors import DltuneError, JobFailed, UsageError
from dltune.frameworks.capabilities import FRAMEWORKS, framework
from dltune.job import protocol
from dltune.job.record import Record
from dltune.schemas.pytorch_step import Calls, Compiled
from dltune.system import kernel_files
from dltune.system.proc import stat
from dltune.system.proc.process import command, mappings

# The reason why nothing was measured or enforced, in one sentence

KILLED = 128 + 9

CRASHES = {128 + 4: "SIGILL", 128 + 6: "SIGABRT", 128 + 7: "SIGBUS", 128 + 11: "SIGSEGV"}
# so much time in XLA clusters is no warm-up any more, so much in eager ops no preparation
XLA_SECONDS = 3.0
EAGER_SECONDS = 60.0
# graphs that train and ran once, and their share of all executions: no step is to be expected
ONCE, ONCE_SHARE = 40, 0.8


@dataclass
class Sightings:
    """Processes of the job that have sent messages, and how far each came."""

    pythons: list[protocol.Python] = field(default_factory=list)
    oom_kills: int = field(default_factory=kernel_files.oom_kills)  # before the job
    failures: list[protocol.Failed] = field(default_factory=list)
    records: dict[int, Record] = field(default_factory=dict)
    # of a step, by process
    calls: dict[int, Calls] = field(default_factory=dict)
    compiled: dict[int, Compiled] = field(default_factory=dict)

    def add(self, message: protocol.Message) -> None:
        if isinstance(message, protocol.Python):
            self.pythons.append(message)
        elif isinstance(message, protocol.Failed):
            self.failures.append(message)
        elif isinstance(message, protocol.Called):
            self.calls[message.pid] = message.step
        elif isinstance(message, protocol.Compiled):
            self.compiled[message.pid] = message.step

    def reported(self) -> tuple[set[int], set[str]]:
        """Return interpreters that have started, and frameworks whose plugin has come."""
        pids = {python.pid for python in self.pythons} | self.records.keys()
        return pids, {record.process.framework for record in self.records.values()}


def hopeless(seen: Sightings) -> DltuneError | None:
    """Return the error for a running job that can never run a usable step; None while it can."""
    if seen.failures and not seen.records:
        return _error(*_failure(seen.failures[0]))
    if _on_accelerator(seen):
        return _error(*_ACCELERATOR)
    xla, eager, graphs = _totals(seen)
    if xla >= XLA_SECONDS and xla > graphs:
        return _error(*_XLA)
    if eager >= EAGER_SECONDS and eager > 10 * graphs:
        return _error(*_EAGER)
    return None


def none_found(seen: Sightings, *, long: bool) -> DltuneError | None:
    """Return the error for a job that trains, but runs no graph again and again; None while it can.
    `long`: it has trained for long enough to judge."""
    training = [
        record.runs[graph]
        for record in seen.records.values()
        for graph in record.graphs
        if record.trains(graph)
    ]
    once = sum(runs <= 1 for runs in training)  # a graph's first run is not always reported
    if once >= ONCE and once >= ONCE_SHARE * sum(training):
        if any(graph.eager for record in seen.records.values() for graph in record.graphs.values()):
            return _error(
                f"the job's steps differ in their ops: {once} of {len(training)} kinds of step "
                "ran at most once",
                "dltune needs steps that run the same ops; move branches and loops that depend "
                "on the data out of the step (varying shapes are fine)",
            )
        return _error(
            f"the job traces a new graph at nearly every step: {once} of {len(training)} training "
            "graphs ran at most once",
            "pass tensors of a fixed shape to the tf.function instead of Python numbers; `dltune "
            "diagnose` names the line",
        )
    if long:
        what = (
            f"no training step repeats: the most frequent of {len(training)} training graphs ran "
            f"{max(training)} times"
            if training
            else "the job has not finished a training step"
        )
        return _error(what, "run `dltune diagnose` to see what the job does instead")
    return None


def why_no_step(seen: Sightings, exit_code: int | None) -> DltuneError:
    """Return the error to raise when the job ran no usable training step.

    It carries the job's exit code if that shows a failure, otherwise the code for wrong use.
    """
    if crash := crash_of(seen, exit_code):
        return crash
    if not seen.pythons:
        return _error(
            "could not attach to the job: it starts no Python, or starts it with -I or "
            "-S, or replaces PYTHONPATH",
            "use a Python job with TensorFlow or PyTorch that keeps the PYTHONPATH from its "
            "environment",
            exit_code,
        )
    if not seen.records and seen.failures:
        return _error(*_failure(seen.failures[0]), exit_code)
    if not seen.records:
        return _error(
            "the job neither imported TensorFlow nor updated parameters with PyTorch",
            None if exit_code else "check that the command starts a training job",
            exit_code,
        )
    if _on_accelerator(seen):
        return _error(*_ACCELERATOR, exit_code)
    xla, eager, graphs = _totals(seen)
    if xla > max(eager, graphs):
        return _error(*_XLA, exit_code)
    repeats = any(n > 1 for record in seen.records.values() for n in record.runs.values())
    if not repeats and not exit_code and eager >= 1.0:
        return _error(*_EAGER, exit_code)
    return _error(
        "the job ended before dltune could measure enough training steps",
        None if exit_code else "let the job train for more steps",
        exit_code,
    )


class OutOfMemory(JobFailed):
    """The kernel has ended the job."""


def crash_of(seen: Sightings, exit_code: int | None) -> DltuneError | None:
    """Return the error for a job that ran out of memory, or crashed with the plugin in it."""
    if exit_code == KILLED and kernel_files.oom_kills() > seen.oom_kills:
        limit = kernel_files.limits().memory
        within = f", which is limited to {limit / 2**20:.0f} MiB" if limit else ""
        steps = [one for record in seen.records.values() for one in record.latest()]
        peak = max((step.peak for step in steps), default=0)
        held = f"; the framework held {peak / 2**20:.0f} MiB in a step" if peak else ""
        return OutOfMemory(
            f"the kernel killed the job because its control group ran out of memory{within}{held}",
            exit_code,
            remedy=(
                "profile the job with a smaller batch; then run `dltune plan memory --budget` to "
                "fit a step into a budget, or `--largest-batch` to find the largest batch that "
                "fits"
            ),
        )
    if exit_code not in CRASHES or not seen.records:
        return None
    return JobFailed(
        f"the job crashed with {CRASHES[exit_code]} while dltune's plugin was loaded",
        exit_code,
        remedy="run the job without dltune to see whether it also crashes",
    )


# the problem, and the remedy
_XLA = (
    "XLA compiles the job's step, or a part of it, into one kernel, so dltune cannot measure its "
    "ops",
    "pass jit_compile=False and unset TF_XLA_FLAGS to measure and plan single ops",
)
_EAGER = "the job runs its ops eagerly, one by one", "put the training step into a tf.function"
_ACCELERATOR = (
    "the job's step runs on an accelerator, and dltune works only on steps on the CPU",
    "hide the accelerator from the job, for example with CUDA_VISIBLE_DEVICES=-1",
)


def _failure(failed: protocol.Failed) -> tuple[str, str]:
    """Return the problem and the remedy."""
    title = framework(failed.framework).title
    return (
        f"dltune's plugin does not work with the job's {title} {failed.version} (pid "
        f"{failed.pid}): {failed.reason}",
        "run `dltune doctor` to see what is missing; `dltune plan --emit` prints settings that "
        "need no plugin",
    )


def _totals(seen: Sightings) -> tuple[float, float, float]:
    """Return seconds in XLA clusters and graphs that have some, in ops run one by one, and in ops
    of other graphs."""
    reports = [r.report for r in seen.records.values() if r.report]
    xla, graphs = sum(r.xla for r in reports), 0.0
    for record in seen.records.values():
        for graph, seconds in record.seconds.items():
            if record.graphs[graph].xla:
                xla += seconds
            else:
                graphs += seconds
    return xla, sum(r.unmarked for r in reports), graphs


def _on_accelerator(seen: Sightings) -> bool:
    return any(
        record.trains(graph.id) and ("GPU" in graph.device or "TPU" in graph.device)
        for record in seen.records.values()
        for graph in record.graphs.values()
    )


def _error(message: str, remedy: str | None, exit_code: int | None = None) -> DltuneError:
    if exit_code:
        return JobFailed(
            f"{message} (the job ended with exit code {exit_code})", exit_code, remedy=remedy
        )
    return UsageError(message, remedy=remedy)


# Processes of the job that run a framework without having reported in.
# Python hands its environment on to the processes that it starts, but -I, -S or a cleaned
# PYTHONPATH keep the bootstrap out. Such a job would run plain and never send a message; the files
# that it has mapped reveal it.

# what a process has mapped that runs a framework
LIBRARIES = {known.library: name for name, known in FRAMEWORKS.items() if known.library}


def require_all_reported(
    session: int, reported: Collection[int], frameworks: Collection[str]
) -> None:
    """Raises UsageError when a process of the `session` runs a framework unheard of. `frameworks`:
    those that have reported elsewhere, as documents call them; a helper of another one is no
    matter where there is one."""
    if (pid := unreported(session, reported, frameworks or FRAMEWORKS)) is not None:
        title = framework(loaded(pid)).title  # it may have ended meanwhile
        raise UsageError(
            f"could not attach to pid {pid}, which runs {title}: its Python was started "
            "with -I, -S or -E, or with another PYTHONPATH",
            remedy="start Python without these options, with the PYTHONPATH from its environment",
        )


def unreported(
    session: int, reported: Collection[int], frameworks: Collection[str] = tuple(FRAMEWORKS)
) -> int | None:
    """A process of the `session` that has one of these loaded without having reported in, or None.

    A process forked from one that reported has the bootstrap from it, and is fine.
    """
    parents = {pid: found.parent for pid, found in stat.session(session).items()}
    for pid in parents:
        if not _descends(pid, parents, reported) and loaded(pid) in frameworks:
            return pid
    return None


def _descends(pid: int, parents: dict[int, int], reported: Collection[int]) -> bool:
    """Whether `pid` reported, or was forked (perhaps) from one that did: it has a framework from
    there, or still the same command line, as horovodrun's tests of what can be imported."""
    if pid in reported:
        return True
    parent = parents.get(pid)
    while parent in parents:
        assert parent is not None
        if parent in reported and (loaded(parent) or command(parent) == command(pid)):
            return True
        parent = parents.get(parent)
    return False


def loaded(pid: int) -> str | None:
    """The framework that a process has loaded, as documents call it; None: none, or it may not be
    seen."""
    try:
        paths = [mapping.path for mapping in mappings(pid)]
    except OSError:
        return None
    return next((name for part, name in LIBRARIES.items() if any(part in p for p in paths)), None)
