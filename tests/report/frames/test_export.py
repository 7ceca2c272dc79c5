"""Every document as a frame and as CSV, from its file."""

from __future__ import annotations

import json
import subprocess
import sys

import examples
import msgspec
import pytest
import table_checks
from any_document import documents
from hypothesis import given, settings
from hypothesis import strategies as st

import dltune
from dltune.base.documents import content
from dltune.base.errors import UsageError
from dltune.core import EXTENSION
from dltune.report import export
from dltune.report.table import tables
from dltune.schemas.profile import Profile


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return examples.written(tmp_path_factory.mktemp("documents"))


def test_every_table_of_every_kind(written):
    assert {name.partition(":")[0] for name in written} == set(EXTENSION.documents)
    for path in written.values():
        table_checks.require_readable(path)


@settings(max_examples=60)
@given(documents(Profile), st.data())
def test_csv_and_frame_have_the_same_cells_whatever_they_hold(document, data):
    found = tables(document)
    table = found[data.draw(st.sampled_from(list(found)))]
    read = table_checks.from_csv(table), table_checks.from_frame(table)
    assert read == (table_checks.rows(table),) * 2


def test_the_main_table_of_a_kind(written):
    main = {
        "dltune.profile": "ops",
        "dltune.plan": "sections.threads.ops",
        "dltune.plan:sample": "sections.threads.predictions",
        "dltune.plan:settings": "sections.settings.effects",
        "dltune.bench": "settings",
        "dltune.tune": "trials",
        "dltune.io": "watch.files",
        "dltune.io:experiment": "experiment.strided",
        "dltune.gate": "verdicts",
        "dltune.gate-baseline": "measured",
        "dltune.gate-history": "gates.points",
        "dltune.graph": "nodes",
        "dltune.machine": "cores",
    }
    assert {name: export.table(written[name]).path for name in main} == main


def test_ops_have_a_row_for_each_case_with_what_follows_from_it(written):
    found = dltune.frame(written["dltune.profile:sample"])
    profile = content(written["dltune.profile:sample"])
    ops = json.loads(profile)["ops"]
    assert len(found) == sum(max(1, len(op["times"])) for op in ops)
    assert set(found["ops"]) == set(range(len(ops)))
    best = found[found["best"].fillna(False)]
    assert len(best) == sum(bool(op["times"]) for op in ops)
    for row in best.to_dict("records"):
        op = ops[row["ops"]]
        assert row["key"] == op["key"]
        assert row["median"] == min(time["median"] for time in op["times"])
        time = op["times"][row["times"]]
        assert (row["threads"], row["placement"]) == (time["threads"], time["placement"])
    rated = found.dropna(subset=["flop_rate", "operations"])
    assert len(rated)
    operations = (rated["flop_rate"] * rated["median"]).tolist()
    assert operations == pytest.approx(rated["operations"].tolist())
    serial = found.drop_duplicates("ops")["serial"]
    assert serial.is_monotonic_decreasing
    assert found["share"].where(~found["ops"].duplicated()).sum() == pytest.approx(1)


def test_tables_of_a_profile_join(written):
    path = written["dltune.profile:sample"]
    nodes, ops = dltune.frame(path, "nodes"), dltune.frame(path, "ops")
    ran = nodes.dropna(subset=["op"]).merge(
        ops.drop_duplicates("ops"), left_on="op", right_on="ops", suffixes=("", "_of_op")
    )
    assert len(ran)
    assert (ran["type"] == ran["type_of_op"]).all()
    counts = dltune.frame(path, "counts")
    joined = counts.merge(ops, on=["ops", "times"], suffixes=("_counted", ""))
    assert len(joined) == len(counts)
    assert (joined["times.threads"] == joined["threads"]).all()


def test_types_do_not_depend_on_what_is_there(written):
    """Counts stay whole numbers beside missing ones, and in a table without rows."""
    nodes = dltune.frame(str(written["dltune.profile:sample"]), "nodes")
    none = dltune.frame(written["dltune.io:experiment"], "files")
    assert (nodes["op"].dtype, nodes["repeats"].dtype) == ("Int64", "float64")
    assert nodes["op"].isna().any()
    assert not len(none)
    assert (none["size"].dtype, none["cached"].dtype) == ("int64", "Int64")
    assert none["direct"].dtype == "bool"


def test_rows_of_dictionaries(written):
    values = export.table(written["dltune.gate"], "values")
    assert next(values.rows()) == ("base", "time", 0, 0.1)


def test_a_file_that_has_no_tables(tmp_path):
    path = tmp_path / "other.json"
    with pytest.raises(UsageError, match="cannot read"):
        export.table(path)
    path.write_bytes(msgspec.json.encode({"schema": "dltune.doctor/1", "checks": []}))
    with pytest.raises(UsageError, match="which has no tables") as none:
        export.table(path)
    assert "dltune.profile, dltune.plan" in str(none.value.remedy)
    path.write_text('{"schema": "dltune.machine/1", "name": "x", "cores": []}')
    with pytest.raises(UsageError, match="cores must not be empty"):
        dltune.frame(path)


def _python(code, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_pandas_is_imported_by_the_call_alone_and_csv_does_without(written):
    code = """
import io, sys
import dltune
print([m for m in ("pandas", "numpy", "msgspec", "click") if m in sys.modules])
from pathlib import Path
from dltune.report import export
export.write(export.table(Path(sys.argv[1])), io.StringIO())
print("pandas" in sys.modules)
sys.modules["pandas"] = None
try:
    dltune.frame(sys.argv[1])
except dltune.base.errors.UsageError as error:
    print(error, error.remedy)
"""
    first, second, third = _python(code, written["dltune.profile"]).splitlines()
    assert first == "[]"
    assert second == "False"
    assert third.startswith("pandas is not installed install it (pip install 'dltune[pandas]')")
