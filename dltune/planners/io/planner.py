"""The planner of reading data, as the registry knows it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import click
import msgspec

from dltune.documents.machine import Machine
from dltune.documents.plan import Plan
from dltune.documents.sections import io
from dltune.documents.sections.io import Access, IoPlan
from dltune.planners.enforcement import Enforcement, Run
from dltune.planners.planner import Decision, Planner
from dltune.planners.shown import Headline, Part, Shown
from dltune.tables import Key, Table, columns


class IoPlanner(Planner[IoPlan]):
    name = "io"
    summary = "How data files should be read, from the measurements of `dltune io-report`."
    section = IoPlan

    def faults(self, section: IoPlan, plan: Plan) -> Iterator[str]:
        return io.faults(section)

    def parameters(self) -> Sequence[click.Parameter]:
        return [
            click.Argument(["report"], type=click.Path(path_type=Path)),
            click.Option(
                ["--access"],
                type=click.Choice(get_args(Access)),
                help="The order in which the job wants records.  [as reported, else strided]",
            ),
        ]

    def decide(self, existing: Plan | None, **parameters: Any) -> Decision[IoPlan]:
        """`dltune run` then gives read-ahead hints to a job that is left as it is; a job that reads
        by dltune.io takes the rest from the plan."""
        from dltune.documents import io as documents
        from dltune.machine import topology
        from dltune.planners.io.decide import decide

        machine = topology.local()
        section = decide(documents.load(parameters["report"]), machine, parameters["access"])
        shown = Shown([Part("files", "", [_files(section)])])
        return Decision(section, machine, remarks=section.reasons, shown=shown)

    def enforce(self, section: IoPlan, run: Run) -> Enforcement:
        return _Enforced(section, run)

    def apply(self, section: IoPlan, plan: Plan, machine: Machine) -> Callable[[], None]:
        """For what reads by dltune.io; hints for other readers need `dltune run`."""
        from dltune.io.reader.planned import use

        return lambda: use(section)

    def show(self, section: IoPlan, plan: Plan, beside: Sequence[msgspec.Struct]) -> Shown:
        parts = [Part("files", "How files are read", [_files(section), *section.reasons])]
        count = "1 file is" if len(section.files) == 1 else f"{len(section.files)} files are"
        return Shown(parts, [Headline(1, f"{count} planned to be read in another way.")])


PLANNER = IoPlanner()


class _Enforced(Enforcement):
    """Hints beside the job; options for its readers."""

    def __init__(self, section: IoPlan, run: Run) -> None:
        self._section = section
        self._say = run.say

    def intent(self) -> Iterator[str]:
        for file in self._section.files:
            does = {
                "ahead": f"hints {file.ahead} bytes ahead of the job",
                "whole": "read once, whole",
            }
            yield f"{file.path}: {does[file.follow] if file.follow else 'left alone'}"

    def environment(self, base: Mapping[str, str], folder: Path) -> Mapping[str, str]:
        from dltune.io.reader.planned import VARIABLE, write

        path = folder / "io.json"
        write(self._section, path)
        return {VARIABLE: str(path)}

    def beside(self, pid: int) -> contextlib.AbstractContextManager[None]:
        from dltune.io.follow.start import followed

        return followed(self._section, pid, self._say)


def _files(section: IoPlan) -> Table:
    rows = []
    for file in section.files:
        reader = file.reader
        way = "-" if reader is None else "direct" if reader.direct else "page cache"
        rows.append(
            (
                Key(file.path, end=True),
                file.access,
                way,
                "-" if reader is None else str(reader.block),
                "-" if reader is None else str(reader.stagger or "all"),
                str(file.ahead),
                file.follow or "nothing",
            )
        )
    heads = ("file", "access", "reader", ">block", ">readers at a time", ">hints ahead")
    return Table("how files are to be read", columns(*heads, "from outside"), rows)
