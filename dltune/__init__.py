"""dltune: measure once, decide many times, enforce without touching the job."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os

    import pandas

__version__ = "0.1.0"
__all__ = ["__version__", "apply", "frame"]


def apply(plan: str) -> None:
    """Enforce the plan file `plan` in this process, as `dltune run --plan` would from outside.

    Call it before TensorFlow's first op. Raises `dltune.base.errors.UsageError` when the plan
    does not fit, or when TensorFlow has made its devices already (a plan would then do nothing).
    """
    from pathlib import Path

    from dltune.plan.plan import apply as apply_here

    apply_here(Path(plan))


def frame(path: str | os.PathLike[str], table: str | None = None) -> pandas.DataFrame:
    """Return a table of the dltune document at `path`, such as "ops", "nodes" or "counts" of a
    profile; without a name the main one of its kind. Times are seconds, sizes bytes.

    Tables and columns are named after the document's fields (docs/explanation/formats.md). Raises
    `dltune.base.errors.UsageError` if the file is no document or has faults, if it has no such
    table (the message names those that it has), and if pandas is not installed.
    """
    from pathlib import Path

    from dltune.report import export

    return export.frame(export.table(Path(path), table))
