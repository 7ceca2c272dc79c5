"""What Perfetto makes of simulated ranks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from perfetto_ui import THREADS, all_is_read, opened, written

RANKS = Path(__file__).parents[4] / "scripts" / "research" / "sim_horovod.py"


def test_simulated_ranks_of_horovod(browser: Any, tmp_path: Path) -> None:
    """A rank's background thread does one thing after another: Horovod's own always something."""
    file = tmp_path / "ranks.json.gz"
    done = subprocess.run(
        [sys.executable, str(RANKS), "trace", str(file)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    made = file.read_bytes()
    with opened(browser, made) as ui:
        all_is_read(ui, written(made))
        threads = ui.query(
            "select process.name, sum(dur), max(ts + dur) - min(ts) "
            f"{THREADS} where thread.name = 'background thread' group by pid order by pid"
        )
    assert [name for name, _, _ in threads] == [
        f"{method}: rank {rank}"
        for method in ("original", "global-sleep", "non-blocking", "ordered-bins")
        for rank in range(4)
    ]
    assert all(busy <= lived for _, busy, lived in threads)
    assert all(busy == lived for name, busy, lived in threads if name.startswith("original"))
