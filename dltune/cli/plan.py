"""`dltune plan`: a command for each planner; `threads` when none is named."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dltune import extensions
from dltune.base.errors import UsageError
from dltune.cli.options import PATH, example
from dltune.plan.planner import load_planner, planner_names

if TYPE_CHECKING:
    from dltune.plan.planner import Decision, Planner

DEFAULT = "threads"


class _Planners(click.Group):
    """The planners; the default one when the first argument names none."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        helps = ctx.help_option_names
        if args and not _is_planner(args[0]) and args[0] not in helps:
            if re.fullmatch("[a-z][a-z-]*", args[0]) and not Path(args[0]).exists():
                raise UsageError(
                    f"{args[0]!r} is neither a planner nor a file",
                    remedy="install the system or package with this planner, name a profile, or "
                    f"use one of {', '.join(planner_names())}",
                )
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(planner_names())

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        return _command(load_planner(name)) if _is_planner(name) else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Planners"):
            formatter.write_dl([(name, _summary(name)) for name in planner_names()])
        if failures := extensions.failures():
            with formatter.section("Extensions that cannot be used"):
                formatter.write_dl(list(failures.items()))


@click.group(
    cls=_Planners,
    epilog=example("dltune plan profile.json"),
    options_metavar="",
    subcommand_metavar="[PLANNER] [OPTIONS] ARGS...",
)
def command() -> None:
    """Make a plan from a profile or a report.

    A plan is a JSON file that `dltune run` applies to the unmodified job. Each planner adds one
    section to it. `dltune plan PROFILE` is short for `dltune plan threads PROFILE`.
    """


def _is_planner(name: str) -> bool:
    """True for the name of a planner, and of an extension that cannot be loaded."""
    return name in planner_names() or name in extensions.failures()


def _summary(name: str) -> str:
    """Return the planner's line, or why the planner cannot be loaded."""
    try:
        return load_planner(name).summary
    except UsageError as error:
        return str(error)


def _command(planner: Planner[Any]) -> click.Command:
    own = planner.parameters()
    if own is None:
        return click.Command(
            planner.name,
            callback=lambda: planner.decide(None),
            help=planner.summary,
            epilog=example(planner.example) if planner.example else None,
        )
    arguments = [one for one in own if isinstance(one, click.Argument)]
    options = [one for one in own if not isinstance(one, click.Argument)]
    beside = (arguments[0].name or "").upper() if arguments else ""
    default = f"plan.json{f' in the folder of {beside}' if beside else ''}"
    common: list[click.Parameter] = [
        click.Option(
            ["-o", "--output"],
            type=PATH,
            metavar="FILE",
            help=f"Write the plan to FILE.  [default: {default}]",
        ),
        click.Option(
            ["--into"], type=PATH, metavar="PLAN", help="Add the section to this existing plan."
        ),
    ]
    if planner.formats:
        offered = click.Choice(planner.formats)
        common.append(
            click.Option(["--emit"], type=offered, help="Print the decision in this format.")
        )
    common += [
        click.Option(["--json", "as_json"], is_flag=True, help="Print the decision as JSON."),
        click.Option(["--overwrite"], is_flag=True, help="Replace the plan if it exists."),
    ]

    def callback(
        output: Path | None,
        into: Path | None,
        as_json: bool,
        overwrite: bool,
        emit: str | None = None,
        **parameters: Any,
    ) -> None:
        from dltune.base.documents import schema

        named = [parameters[one.name] for one in arguments if one.name and parameters[one.name]]
        # other arguments are no files
        sources = [one for one in named if isinstance(one, Path)]
        if output and into:
            raise UsageError(
                "-o and --into cannot be combined: both name the file of the plan",
                remedy="leave out one of them",
            )
        if as_json and emit:
            raise UsageError(
                "--json and --emit cannot be combined: both print to standard output",
                remedy="leave out one of them",
            )
        target = into or output or (sources[0].parent if sources else Path()) / "plan.json"
        for source in sources:
            schema(source)  # it can be read: its other faults are reported later
        for source in filter(Path.is_file, (v for v in parameters.values() if isinstance(v, Path))):
            if target.resolve() == source.resolve():
                raise UsageError(
                    f"{target} is an input of the plan, so it cannot be the output",
                    remedy="name another file with -o",
                )
        _plan(planner, target, into, emit, as_json, overwrite, parameters)

    return click.Command(
        planner.name,
        params=[*arguments, *common[:2], *options, *common[2:]],
        callback=callback,
        help=f"{planner.summary}\n\n{_text(planner)}",
        epilog=example(planner.example or _usage(planner, arguments)),
        short_help=planner.summary,
    )


def _usage(planner: Planner[Any], arguments: Sequence[click.Argument]) -> str:
    files = (f"{one.name}.json" for one in arguments if one.required)
    return " ".join(("dltune plan", planner.name, *files))


def _text(planner: Planner[Any]) -> str:
    """Help of its command below the first line: the docstring of `decide`."""
    return inspect.cleandoc(type(planner).decide.__doc__ or "")


def _plan(
    planner: Planner[Any],
    target: Path,
    into: Path | None,
    emit: str | None,
    as_json: bool,
    overwrite: bool,
    parameters: dict[str, Any],
) -> None:
    from dltune.base.documents import claim
    from dltune.plan.plan import describe_differences, load_plan, merge_section

    existing = load_plan(into) if into else None
    remarks: list[str] = []
    with claim(target, overwrite=overwrite or into is not None) as file:
        decision = planner.decide(existing, **parameters)
        profile = decision.profile
        plan = merge_section(existing, planner.name, decision.section, decision.machine, profile)
        if profile and profile.partial:
            remarks.append(f"warning: the profile is incomplete: {profile.partial}")
        unlike = (
            describe_differences(existing, profile, planner.name) if existing and profile else ""
        )
        if unlike:
            remarks.append(
                f"warning: the plan runs the job {unlike}, unlike the profiled job; op times can "
                "differ"
            )
        emitted = decision.formats[emit]() if emit else ""
        file.write(plan)
    for sentence in (*remarks, *decision.remarks):
        labelled = sentence.startswith(("note: ", "warning: "))
        click.echo(sentence if labelled else f"note: {sentence}", err=True)
    if emit:
        click.echo(emitted, nl=False)
    elif as_json:
        click.echo(_json(decision, target))
    else:
        _show(decision)
    for line in decision.explanation:
        click.echo(line, err=bool(emit or as_json))
    click.echo(
        f"plan written to {target}" + (f": {decision.choice}" * bool(decision.choice)), err=True
    )


def _json(decision: Decision[Any], target: Path) -> str:
    import msgspec

    summary = decision.section if decision.summary is None else decision.summary
    whole = {"output": str(target), **msgspec.to_builtins(summary)}
    return msgspec.json.format(msgspec.json.encode(whole), indent=2).decode()


def _show(decision: Decision[Any]) -> None:
    from dltune.cli.terminal import show_body

    for section in decision.shown.sections:
        show_body(section.body)
