"""A plan for reading in a job, alone and with settings."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
import synthetic

from dltune.base.errors import UsageError
from dltune.plan.plan import Composition, new_plan
from dltune.schemas.settings import Choice, SettingsPlan
from dltune.systems.lmdb.reader.options import VARIABLE
from dltune.systems.lmdb.section import FilePlan, IoPlan

HERE = synthetic.machine(4)
CHOSEN = (Choice("threads", "2x1"), Choice("onednn", "off"), Choice("batch_norm", "fused"))
SETTINGS = SettingsPlan(("python",), CHOSEN, "rounding", None, None, (), (), 1.0, None)
READING = IoPlan("", (FilePlan("/data.mdb", "strided", None, 4096, "ahead"),), ())


def test_variables_of_all_sections_reach_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS", raising=False)
    out = tmp_path / "out"
    code = (
        "import json, os\nfrom pathlib import Path\n"
        f"read = Path(os.environ[{VARIABLE!r}]).read_text()\n"
        f"json.dump({{**os.environ, 'read': read}}, open({str(out)!r}, 'w'))"
    )
    plan = new_plan(HERE, sections={"settings": SETTINGS, "io": READING})
    command = (sys.executable, "-c", code)
    there = Composition(plan, HERE, command, os.environ, partial=False, say=lambda _: None)
    with there.started() as job, pytest.raises(UsageError, match="imported TensorFlow"):
        there.watch(job)
    told = json.loads(out.read_text())
    assert told["TF_ENABLE_ONEDNN_OPTS"] == "0"
    assert "/data.mdb" in told["read"]
    assert "DLTUNE_SOCKET" in told


def test_a_job_that_needs_nothing_inside_is_left_plain(tmp_path: Path) -> None:
    out = tmp_path / "out"
    code = f"import os; open({str(out)!r}, 'w').write(os.environ['DLTUNE_DISABLE'])"
    plan = new_plan(HERE, sections={"io": READING})
    command = (sys.executable, "-c", code)
    there = Composition(plan, HERE, command, os.environ, partial=False, say=lambda _: None)
    with there.started() as job:
        there.watch(job)
    assert out.read_text() == "1"
