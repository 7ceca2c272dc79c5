"""Planner of the reading of data."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import click
import msgspec

from dltune.base.formatting import Figure, Key, Table, columns, counted, size
from dltune.plan.planner import Decision, Enforcement, Planner, Run
from dltune.schemas.machine import Machine
from dltune.schemas.plan import Plan
from dltune.systems.lmdb.section import Access, IoPlan
from dltune.views import Headline, Section, View


class IoPlanner(Planner[IoPlan]):
    name = "io"
    summary = "Plan how data files are read: read-ahead hints, and settings of dltune's reader."
    example = "dltune plan io report.json"
    section = IoPlan
    tables = ("files",)

    def parameters(self) -> Sequence[click.Parameter]:
        return [
            click.Argument(["report"], type=click.Path(path_type=Path)),
            click.Option(
                ["--access"],
                type=click.Choice(get_args(Access)),
                help="Plan for reads in this order.  [default: the report's, else strided]",
            ),
        ]

    def decide(self, existing: Plan | None, **parameters: Any) -> Decision[IoPlan]:
        """REPORT is from dltune io-report, on a job or on a file (--file).

        dltune run --plan then gives the kernel read-ahead hints while the unmodified job runs. A
        job that reads with dltune.systems.lmdb.Reader also takes its reader settings from the plan.
        """
        from dltune.schemas import io as documents
        from dltune.system import topology
        from dltune.systems.lmdb.decide import decide

        machine = topology.local()
        section = decide(documents.load(parameters["report"]), machine, parameters["access"])
        shown = View([Section("files", "", [_files(section)])])
        return Decision(section, machine, remarks=section.reasons, shown=shown)

    def enforce(self, section: IoPlan, run: Run) -> Enforcement:
        return _Enforced(section, run)

    def apply(self, section: IoPlan, plan: Plan, machine: Machine) -> Callable[[], None]:
        """For what reads by dltune.systems.lmdb; hints for other readers need `dltune run`."""
        from dltune.systems.lmdb.reader.options import use_plan

        return lambda: use_plan(section)

    def show(self, section: IoPlan, plan: Plan, beside: Sequence[msgspec.Struct]) -> View:
        sections = [Section("files", "How files are read", [_files(section), *section.reasons])]
        sentence = f"The plan changes how {counted(len(section.files), 'file')} will be read."
        return View(sections, [Headline(1, sentence)])


PLANNER = IoPlanner()


class _Enforced(Enforcement):
    """Hints by a process next to the job; options for its readers."""

    def __init__(self, section: IoPlan, run: Run) -> None:
        self._section = section
        self._say = run.say

    def intent(self) -> Iterator[str]:
        for file in self._section.files:
            does = {
                "ahead": f"read-ahead hints, {size(file.ahead)} ahead of the job",
                "whole": "read-ahead of the whole file, once",
            }
            yield f"{file.path}: {does[file.follow] if file.follow else 'no read-ahead hints'}"

    def environment(self, base: Mapping[str, str], folder: Path) -> Mapping[str, str]:
        from dltune.systems.lmdb.reader.options import VARIABLE, write_plan

        path = folder / "io.json"
        write_plan(self._section, path)
        return {VARIABLE: str(path)}

    def beside(self, pid: int) -> contextlib.AbstractContextManager[None]:
        from dltune.systems.lmdb.follow import followed

        if not any(file.follow for file in self._section.files):
            self._say(
                "the plan has no read-ahead hints; it only changes jobs that read with "
                "dltune.systems.lmdb.Reader"
            )
        return followed(self._section, pid, self._say)


def _files(section: IoPlan) -> Table:
    rows = []
    for file in section.files:
        reader = file.reader
        way = "-" if reader is None else "O_DIRECT" if reader.direct else "page cache"
        rows.append(
            (
                Key(file.path, end=True),
                file.access,
                way,
                "-" if reader is None else Figure(size(reader.block), reader.block),
                "-" if reader is None else str(reader.stagger or "all"),
                Figure(size(file.ahead), file.ahead),
                {"ahead": "ahead of the job", "whole": "whole file"}.get(file.follow or "", "none"),
            )
        )
    heads = ("file", "access", "reads", ">request", ">readers at a time", ">hints ahead")
    return Table("planned reading", columns(*heads, "hints by dltune run"), rows)
