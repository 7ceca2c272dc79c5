"""Requests for a memory plan, as the options of the command make them."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from dltune.base.errors import UsageError
from dltune.native import solver
from dltune.schemas.machine import Tier
from dltune.schemas.profile import Profile
from dltune.system.memory import file_tier


@dataclass(frozen=True)
class Request:
    """Aim of a plan, which is one of the first three, and its means. Raises UsageError if options
    do not go together.

    `budget`: bytes of the framework's allocator in all.
    `smallest`: the least memory, at any slowdown.
    `slowdown`: the least memory with so much more op time, a share.
    `largest_batch`: the most samples that fit into the budget.
    `deepest`: the number of blocks that could be added within the budget.
    `offload`: folder to which results can move until they are needed.
    `solve`: seconds of searching for a better selection under the budget.
    `bounded`: with a bound of the added time. This and `solve` need ortools, and have no effect if
      results can move.
    """

    budget: int | None = None
    smallest: bool = False
    slowdown: float | None = None
    largest_batch: bool = False
    deepest: bool = False
    offload: Path | None = None
    solve: float | None = None
    bounded: bool = False

    def __post_init__(self) -> None:
        if [self.budget is not None, self.smallest, self.slowdown is not None].count(True) != 1:
            raise UsageError(
                "exactly one of --budget, --smallest and --slowdown is required",
                remedy="pass for example --budget 8GiB",
            )
        if self.largest_batch and self.budget is None:
            raise UsageError(
                "--largest-batch requires --budget", remedy="add for example --budget 8GiB"
            )
        if self.deepest and (self.budget is None or self.largest_batch):
            raise UsageError(
                "--deepest requires --budget and cannot be combined with --largest-batch",
                remedy="pass for example --budget 8GiB --deepest",
            )
        solves = self.solve is not None
        if self.offload and (self.budget is None or self.largest_batch or solves):
            raise UsageError(
                "--offload requires --budget and cannot be combined with --largest-batch or "
                "--solve",
                remedy="pass for example --budget 8GiB --offload FOLDER",
            )
        if solves:
            if self.budget is None:
                raise UsageError(
                    "--solve requires --budget", remedy="add for example --budget 8GiB"
                )
            solver.require()

    def require_support(self, profile: Profile) -> None:
        """Raise UsageError if the steps of this job do not support the request."""
        rewrites = self.largest_batch or self.deepest or self.offload
        if profile.compiled is not None and (rewrites or self.solve is not None):
            raise UsageError(
                "--largest-batch, --deepest, --offload and --solve do not apply to jobs that use "
                "torch.compile",
                remedy="pass --budget, --smallest or --slowdown only",
            )
        if profile.framework.capabilities.is_eager and rewrites:  # no graph to change
            raise UsageError(
                "--largest-batch, --deepest and --offload support TensorFlow only",
                remedy="for PyTorch, pass --budget, --smallest or --slowdown only",
            )

    @functools.cached_property
    def tier(self) -> Tier | None:
        """Measure the folder to which results can move, which takes some seconds."""
        return file_tier(self.offload) if self.offload else None


SMALLEST = Request(smallest=True)
