"""Control groups that keep what runs in them to a share of the cores; needs root."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
PERIOD = 100_000  # microseconds


@contextmanager
def core_quotas(count: int, cores: float, period: int = PERIOD) -> Iterator[list[tuple[str, ...]]]:
    """So many groups, each with the CPU time of `cores` in every `period` (microseconds): what
    comes before a command that is to run there. Gone when the block is left, after what ran in
    them."""
    first = ROOT / "cpu"  # where the first version of control groups has this controller
    parent = first if first.exists() else ROOT
    made = []
    try:
        for number in range(count):
            group = parent / f"dl{os.getpid()}q{number}"
            group.mkdir()
            made.append(group)
            quota = round(cores * period)
            if parent == first:
                (group / "cpu.cfs_period_us").write_text(str(period))
                (group / "cpu.cfs_quota_us").write_text(str(quota))
            else:
                (group / "cpu.max").write_text(f"{quota} {period}")
        enter = 'echo $$ > "$0" && exec "$@"'
        yield [("sh", "-c", enter, str(group / "cgroup.procs")) for group in made]
    finally:
        for group in made:
            group.rmdir()
