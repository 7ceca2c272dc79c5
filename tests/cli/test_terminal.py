"""Pictures on a terminal, in lines of blocks."""

from __future__ import annotations

import pytest

from dltune.base.formatting import Course, Series
from dltune.cli.terminal import COLUMNS, show_body


def test_a_course_is_a_line_of_blocks_for_each_series(capsys: pytest.CaptureFixture[str]) -> None:
    """As long as its time, as high as the highest of what a block stands for."""
    long = Series("long", 2.0, [8.0, *[0.0] * 99, *[4.0] * 100])
    show_body([Course("memory", [long, Series("short", 1.0, [2.0])], "MiB")])
    head, first, second = capsys.readouterr().out.strip().splitlines()
    assert head == "memory: up to 8.0 MiB, over 2000.0 ms"
    name, blocks = first[:7], first[7:]
    assert (name, len(blocks), blocks[0]) == ("long   ", COLUMNS, "█")
    assert set(blocks[1 : COLUMNS // 2]) == {" "}
    assert set(blocks[COLUMNS // 2 :]) == {"▄"}
    assert second == "short  " + "▂" * (COLUMNS // 2)
