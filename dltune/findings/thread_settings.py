"""How a job is given threads, in the words of its framework."""

from __future__ import annotations

from dltune.documents.observation import Process
from dltune.documents.profile import TITLES


def intra_op(framework: str | None, threads: int) -> str:
    """So many threads an op."""
    if framework == "pytorch":
        return f"OMP_NUM_THREADS={threads}"
    return f"TF_NUM_INTRAOP_THREADS={threads}"


def one_op_at_a_time(framework: str | None, threads: int) -> str:
    """So many threads an op, and no two ops side by side."""
    alone = "" if framework == "pytorch" else " TF_NUM_INTEROP_THREADS=1"
    return intra_op(framework, threads) + alone


def threads_of(process: Process) -> str:
    """What a process has, as in "TensorFlow uses 4 intra-op and 2 inter-op threads"."""
    name = process.framework or "tensorflow"
    title = TITLES.get(name, name)
    if process.framework == "pytorch":
        return f"{title} uses {process.intra} threads for an op"
    return f"{title} uses {process.intra} intra-op and {process.inter} inter-op threads"
