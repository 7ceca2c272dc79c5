"""A plan for reading that `dltune.apply` refuses with the rest of the plan."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hand_plans import plan_for, write
from profiled_jobs import Done

from dltune.plan.plan import with_sections
from dltune.schemas import profile as profiles
from dltune.system import topology
from dltune.systems.lmdb.reader.options import AHEAD
from dltune.systems.lmdb.section import FilePlan, IoPlan

pytestmark = pytest.mark.tensorflow


def test_apply_after_the_devices_exist_is_refused(
    profiled: Callable[[str], Done], tmp_path: Path
) -> None:
    reading = IoPlan("", (FilePlan("/data.mdb", "strided", None, 4096, "ahead"),), ())
    threads = plan_for(profiles.load(profiled("gradient_tape").output), topology.local(), {})
    plan = with_sections(threads, io=reading)
    code = (
        "import tensorflow as tf; tf.zeros(1); import dltune, pathlib\n"
        "from dltune.base.errors import UsageError\n"
        "from dltune.systems.lmdb.reader.options import planned_ahead\n"
        f"try: dltune.apply({str(write(plan, tmp_path / 'plan.json'))!r})\n"
        "except UsageError as e: print(e)\n"
        "print('ahead', planned_ahead(pathlib.Path('/data.mdb')))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert "already created its devices" in done.stdout, done.stderr
    assert f"ahead {AHEAD}" in done.stdout  # nothing else of the plan is in force either
