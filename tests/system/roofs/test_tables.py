from __future__ import annotations

from roofed import roofs

from dltune.schemas.machine import Peak
from dltune.system.roofs.measure import arithmetic, remarks, roof_tables, unsettled


def test_ports_width_and_frequency_stand_beside_what_was_measured():
    peak = Peak("float64", "AVX-512", 16, 1, 127e9, 120e9, 10)
    assert arithmetic(peak, 4e9) == "1.98 per cycle; 2 x 16 x 4.00 GHz = 128.0"


def test_a_row_for_each_case_with_one_core_and_all():
    peaks, bandwidths = roof_tables(roofs())
    assert [column.head for column in peaks.columns][2:4] == ["1 core", "2 cores"]
    row = next(row for row in peaks.rows if row[:2] == ("float64", "AVX-512"))
    assert row[2:4] == ("128.0", "256.0")
    assert [row[0] for row in bandwidths.rows][::2] == ["L1", "L2", "L3", "memory"]


def test_one_core_has_no_second_figure():
    alone = roofs(
        cores=1,
        peaks=tuple(p for p in roofs().peaks if p.cores == 1),
        bandwidths=tuple(b for b in roofs().bandwidths if b.cores == 1),
    )
    peaks, bandwidths = roof_tables(alone)
    assert all(row[3] == "" for row in (*peaks.rows, *bandwidths.rows))


def test_what_was_disturbed_is_told():
    assert unsettled(roofs()) is None
    found = " ".join(remarks(roofs(unsettled=3, notes=("AMX: no",))))
    assert "3 of the 33 measured peaks could be too low" in found
    assert found.endswith("AMX: no")
