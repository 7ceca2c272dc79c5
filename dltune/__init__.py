"""dltune: measure once, decide many times, enforce without touching the job."""

from __future__ import annotations

__version__ = "0.1.0"
__all__ = ["__version__", "apply"]


def apply(plan: str) -> None:
    """Enforce the plan file `plan` in this process, as `dltune run --plan` would from outside.

    Call it before TensorFlow's first op. Raises `dltune.errors.UsageError` when the plan does not
    fit, or when TensorFlow has made its devices already (a plan would then do nothing).
    """
    from pathlib import Path

    from dltune.run.here import apply as apply_here

    apply_here(Path(plan))
