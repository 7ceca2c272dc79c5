"""A plan on one job: what is refused before the job starts."""

from __future__ import annotations

import pytest
import synthetic

from dltune.base.errors import UsageError
from dltune.plan.plan import Composition, bare


def test_a_plan_without_sections_is_refused() -> None:
    machine = synthetic.machine(4)
    with pytest.raises(UsageError, match="the plan has no section"):
        Composition(bare(machine), machine, ("python",), {}, partial=False, say=print)
