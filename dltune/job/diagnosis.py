"""Why nothing was measured or enforced, in one sentence."""

from __future__ import annotations

from dataclasses import dataclass, field

from dltune.documents.calls import Calls
from dltune.documents.compiled import Compiled
from dltune.documents.profile import TITLES
from dltune.errors import DltuneError, JobFailed, UsageError
from dltune.job import messages
from dltune.job.record import Record
from dltune.machine import cgroups

KILLED = 128 + 9

CRASHES = {128 + 4: "SIGILL", 128 + 6: "SIGABRT", 128 + 7: "SIGBUS", 128 + 11: "SIGSEGV"}
# so much time in XLA clusters is no warm-up any more, so much in eager ops no preparation
XLA_SECONDS = 3.0
EAGER_SECONDS = 60.0
# graphs that train and ran once, and their share of all executions: no step is to be expected
ONCE, ONCE_SHARE = 40, 0.8


@dataclass
class Sightings:
    """Which processes of the job were heard of, and how far each came."""

    pythons: list[messages.Python] = field(default_factory=list)
    oom_kills: int = field(default_factory=cgroups.oom_kills)  # before the job
    failures: list[messages.Failed] = field(default_factory=list)
    records: dict[int, Record] = field(default_factory=dict)
    # of a step, by process
    calls: dict[int, Calls] = field(default_factory=dict)
    compiled: dict[int, Compiled] = field(default_factory=dict)

    def add(self, message: messages.Message) -> None:
        if isinstance(message, messages.Python):
            self.pythons.append(message)
        elif isinstance(message, messages.Failed):
            self.failures.append(message)
        elif isinstance(message, messages.Called):
            self.calls[message.pid] = message.step
        elif isinstance(message, messages.Compiled):
            self.compiled[message.pid] = message.step

    def reported(self) -> tuple[set[int], set[str]]:
        """Interpreters that have started, and frameworks whose plugin has come."""
        pids = {python.pid for python in self.pythons} | self.records.keys()
        return pids, {record.process.framework for record in self.records.values()}


def hopeless(seen: Sightings) -> DltuneError | None:
    """The error for a running job that can never give a step to work on; None while it may."""
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
    """The error for a job that trains, but runs no graph again and again; None while it may.
    `long`: it has trained for long enough to tell."""
    training = [
        record.runs[graph]
        for record in seen.records.values()
        for graph in record.graphs
        if record.trains(graph)
    ]
    once = sum(runs <= 1 for runs in training)  # a graph's first run is not always told
    if once >= ONCE and once >= ONCE_SHARE * sum(training):
        if any(graph.eager for record in seen.records.values() for graph in record.graphs.values()):
            return _error(
                f"the job's steps differ: of {len(training)} kinds {once} ran once at most, each "
                "with other ops than the others",
                "dltune plans for steps that repeat; data of any shape are no hindrance, branches "
                "and loops over data are",
            )
        return _error(
            f"the job traces a new graph at nearly every step: {once} of {len(training)} that "
            "train ran once at most",
            "give the tf.function tensors of one shape, not Python numbers: `dltune diagnose` "
            "names the line",
        )
    if long:
        what = (
            f"no graph of the job runs again and again: {len(training)} train, and the most "
            f"frequent of them has run {max(training)} times"
            if training
            else "no step of training has come to its end"
        )
        return _error(what, "`dltune diagnose` tells what the job does instead")
    return None


def why_no_step(seen: Sightings, exit_code: int | None) -> DltuneError:
    """The error to raise when the job gave no training step to work on.

    It carries the job's own exit code when that tells of a failure, else that of wrong use.
    """
    if crash := crash_of(seen, exit_code):
        return crash
    if not seen.pythons:
        return _error(
            "no Python of the job reported in: it starts no Python, or starts it with -I, -S or a "
            "PYTHONPATH of its own",
            "dltune works on Python jobs that use TensorFlow or PyTorch",
            exit_code,
        )
    if not seen.records and seen.failures:
        return _error(*_failure(seen.failures[0]), exit_code)
    if not seen.records:
        return _error(
            "the job never imported TensorFlow, nor did PyTorch update parameters in it",
            None,
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
        "the job ended before a training step had run often enough to be measured",
        None if exit_code else "let it train for more steps",
        exit_code,
    )


class OutOfMemory(JobFailed):
    """The kernel has ended the job."""


def crash_of(seen: Sightings, exit_code: int | None) -> DltuneError | None:
    """The error for a job that ran out of memory, or crashed with the plugin in it."""
    if exit_code == KILLED and cgroups.oom_kills() > seen.oom_kills:
        limit = cgroups.limits().memory
        within = f", which may take {limit / 2**20:.0f} MiB" if limit else ""
        steps = [one for record in seen.records.values() for one in record.latest()]
        peak = max((step.peak for step in steps), default=0)
        held = f"; the framework held {peak / 2**20:.0f} MiB in a step" if peak else ""
        return OutOfMemory(
            "the job was killed while the kernel ended a process for want of memory in its control "
            f"group{within}{held}",
            exit_code,
            remedy="profile it with fewer examples a step; `dltune plan memory --budget` plans for "
            "what there is then, and --largest-batch for as many examples as have room",
        )
    if exit_code not in CRASHES or not seen.records:
        return None
    return JobFailed(
        f"the job crashed with {CRASHES[exit_code]} while dltune's plugin was loaded",
        exit_code,
        remedy="run it with DLTUNE_DISABLE=1 to see whether it crashes on its own",
    )


# what is wrong, and what to do about it
_XLA = (
    "the job's step, or a part of it, is compiled by XLA, which makes one kernel of it",
    "pass jit_compile=False, and no TF_XLA_FLAGS, to measure and plan its ops",
)
_EAGER = "the job runs its ops eagerly, one by one", "put the training step into a tf.function"
_ACCELERATOR = "the job's step runs on an accelerator; dltune is for steps on the CPU", None


def _failure(failed: messages.Failed) -> tuple[str, str]:
    """What went wrong, and what to do about it."""
    title = TITLES.get(failed.framework, failed.framework)
    return (
        f"the plugin does not work with the job's {title} {failed.version} "
        f"(pid {failed.pid}): {failed.reason}",
        "`dltune doctor` tells what is missing; `dltune plan --emit` gives settings that need no "
        "plugin",
    )


def _totals(seen: Sightings) -> tuple[float, float, float]:
    """Seconds in XLA clusters and graphs that have some, in ops run one by one, and in ops of other
    graphs."""
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
            f"{message} (it ended with exit code {exit_code})", exit_code, remedy=remedy
        )
    return UsageError(message, remedy=remedy)
