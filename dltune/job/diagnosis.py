"""Why nothing was measured or enforced, in one sentence."""

from __future__ import annotations

from dataclasses import dataclass, field

from dltune.errors import DltuneError, JobFailed, UsageError
from dltune.job import messages
from dltune.job.record import Record

CRASHES = {128 + 4: "SIGILL", 128 + 6: "SIGABRT", 128 + 7: "SIGBUS", 128 + 11: "SIGSEGV"}


@dataclass
class Sightings:
    """Which processes of the job were heard of, and how far each came."""

    pythons: list[messages.Python] = field(default_factory=list)
    failures: list[messages.Failed] = field(default_factory=list)
    records: dict[int, Record] = field(default_factory=dict)

    def add(self, message: messages.Message) -> None:
        if isinstance(message, messages.Python):
            self.pythons.append(message)
        elif isinstance(message, messages.Failed):
            self.failures.append(message)


def why_no_step(seen: Sightings, exit_code: int | None) -> DltuneError:
    """The error to raise when the job gave no training step to work on."""
    failed = exit_code not in (0, None)
    after = f" (it ended with exit code {exit_code})" if failed else ""
    if crash := crash_of(seen, exit_code):
        return crash
    if not seen.pythons:
        return _error(
            f"no Python of the job reported in{after}: it starts no Python, or starts it with -I, "
            "-S or a PYTHONPATH of its own",
            exit_code,
            "dltune works on Python jobs that use TensorFlow",
        )
    if not seen.records and seen.failures:
        first = seen.failures[0]
        return UsageError(
            f"the plugin does not work with the job's TensorFlow {first.version} "
            f"(pid {first.pid}): {first.reason}",
            remedy="`dltune doctor` tells what is missing; `dltune plan --emit` gives settings "
            "that need no plugin",
        )
    if not seen.records:
        return _error(f"the job never imported TensorFlow{after}", exit_code, None)
    graphs = [g for r in seen.records.values() for g in r.graphs.values()]
    reports = [r.report for r in seen.records.values() if r.report]
    if any(g.xla for g in graphs) or any(r.xla > r.unmarked for r in reports):
        return UsageError(
            "the job's step is compiled by XLA, which makes it one kernel",
            remedy="pass jit_compile=False to measure and plan its ops",
        )
    if any("GPU" in g.device or "TPU" in g.device for g in graphs):
        return UsageError("the job's step runs on an accelerator; dltune is for steps on the CPU")
    if not graphs and any(r.unmarked > 0 for r in reports):
        return _error(
            f"the job runs its ops eagerly, one by one{after}",
            exit_code,
            "put the training step into a tf.function",
        )
    if failed:
        assert exit_code is not None
        return JobFailed(f"the job ended with exit code {exit_code} before a step", exit_code)
    return UsageError("the job ended before a training step had run often enough to be measured")


def crash_of(seen: Sightings, exit_code: int | None) -> DltuneError | None:
    """The error for a job that crashed with the plugin in it."""
    if exit_code not in CRASHES or not seen.records:
        return None
    return JobFailed(
        f"the job crashed with {CRASHES[exit_code]} while dltune's plugin was loaded",
        exit_code,
        remedy="run it with DLTUNE_DISABLE=1 to see whether it crashes on its own",
    )


def _error(message: str, exit_code: int | None, remedy: str | None) -> DltuneError:
    if exit_code:
        return JobFailed(message, exit_code, remedy=remedy)
    return UsageError(message, remedy=remedy)
