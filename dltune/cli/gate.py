"""`dltune gate record`, `check` and `ab`."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dltune.base.errors import GateFailed, UsageError
from dltune.base.formatting import visible
from dltune.cli.options import JOB, PATH, example
from dltune.cli.results import require_apart

if TYPE_CHECKING:
    from dltune.base.documents import Output
    from dltune.gate.checkouts import Side
    from dltune.gate.limits import Config
    from dltune.gate.measurement import Measurement
    from dltune.schemas.gate import Result
    from dltune.schemas.machine import Machine

_CONFIG = click.option(
    "--config",
    "config_path",
    type=PATH,
    help="Read the limits from this TOML file (default: [tool.dltune.gate] in pyproject.toml).",
)
_FILES = ("output", "junit", "markdown", "gitlab", "trend")
_OVERWRITE = click.option(
    "--overwrite", is_flag=True, help="Replace output files that already exist."
)


@dataclass(frozen=True)
class _Outputs:
    """Outputs of a result in addition to the terminal."""

    files: dict[str, Path]  # by the names of their options
    history: Path | None
    github: bool
    as_json: bool
    overwrite: bool

    def written(self) -> list[Path]:
        """The files and the history, which is appended to."""
        return [*self.files.values(), *([self.history] if self.history else [])]


def _outputs(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options for the outputs of a result, gathered in `outputs`."""

    @click.option("-o", "--output", type=PATH, help="Write the result as JSON to this file.")
    @click.option("--junit", type=PATH, help="Write JUnit XML to this file, one test per limit.")
    @click.option("--markdown", type=PATH, help="Write a pull request comment to this file.")
    @click.option("--gitlab", type=PATH, help="Write a GitLab code quality report to this file.")
    @click.option("--github", is_flag=True, help="Print annotations for GitHub Actions on stderr.")
    @click.option(
        "--history", type=PATH, help="Append the result to this file and check it for slow drift."
    )
    @click.option("--trend", type=PATH, help="Draw the history as SVG to this file.")
    @click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
    @_OVERWRITE
    @functools.wraps(function)  # click keeps the parameters below in an attribute
    def gathered(**given: Any) -> None:
        named = {name: given.pop(name) for name in _FILES}
        mine = {name: given.pop(name) for name in ("history", "github", "as_json", "overwrite")}
        files = {name: path for name, path in named.items() if path is not None}
        function(outputs=_Outputs(files, **mine), **given)

    return gathered


@click.group(
    "gate",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=example("dltune gate ab --base main -- python train.py"),
)
def command() -> None:
    """Check performance limits: exit 0 if they hold, 1 if a limit fails, 2 on wrong use."""


@command.command(
    "ab", epilog=example("dltune gate ab --base main --markdown gate.md -- python train.py")
)
@click.option("--base", required=True, metavar="REF", help="Compare HEAD with this revision.")
@_CONFIG
@click.option(
    "--pyperf",
    type=PATH,
    nargs=2,
    metavar="BASE HEAD",
    help="Write the measured times of both sides as pyperf files.",
)
@_outputs
@JOB
def ab_command(
    base: str,
    config_path: Path | None,
    pyperf: tuple[Path, Path] | None,
    outputs: _Outputs,
    job: tuple[str, ...],
) -> None:
    """Compare HEAD with another revision, measured in turns.

    Both revisions run on this machine. dltune times the steps of a training job, and the whole run
    of any other command. Only commits are compared, so commit first. The two temporary checkouts
    are removed at the end.
    """
    from dltune.bench.step_times import require_pyperf
    from dltune.gate.comparison import ab, configuration
    from dltune.system import topology

    here = Path.cwd()
    config = configuration(here, config_path)
    _require_history(outputs)
    if pyperf:
        require_pyperf()
    machine = topology.local()
    raw = dict(zip(("base", "head"), pyperf, strict=True)) if pyperf else {}
    require_apart((config_path, outputs.history), raw.values())
    require_apart((config_path,), outputs.written())
    with _claimed(outputs.files | raw, outputs.overwrite) as (files, tell):
        found, made = ab(here, base, job, config, machine, tell=tell)
        for name in raw:
            files[name].write_bytes(_raw(made, name, machine, job))
        found = _write(found, outputs, files, config, paired=True)
    _tell(found, outputs)


@command.command("record", epilog=example("dltune gate record -o baseline.json -- python train.py"))
@_CONFIG
@click.option("-o", "--output", type=PATH, required=True, help="Write the baseline to this file.")
@click.option(
    "--rounds",
    type=click.IntRange(min=2),
    default=15,
    show_default=True,
    help="Measure this many rounds.",
)
@click.option("--pyperf", type=PATH, help="Write the measured times as a pyperf file.")
@_OVERWRITE
@JOB
def record_command(
    config_path: Path | None,
    output: Path,
    rounds: int,
    pyperf: Path | None,
    overwrite: bool,
    job: tuple[str, ...],
) -> None:
    """Measure a command and save a baseline for `check`.

    Use the baseline on the same machine only.
    """
    from dltune.bench.step_times import require_pyperf
    from dltune.gate import comparison
    from dltune.gate.comparison import configuration
    from dltune.gate.measurement import measure
    from dltune.gate.verdicts import least_baseline
    from dltune.system import topology

    here = Path.cwd()
    config = configuration(here, config_path)
    if pyperf:
        require_pyperf()
    machine = topology.local()
    side = _here(here, job)
    if rounds < (least := least_baseline(config.confidence)):
        raise UsageError(
            f"--rounds {rounds} is too small: a ratio with confidence {config.confidence:g} needs "
            f"a baseline of at least {least} rounds",
            remedy=f"use --rounds {least} or more",
        )
    require_apart((config_path,), (output, pyperf))
    named = {"output": output} | ({"pyperf": pyperf} if pyperf else {})
    with _claimed(named, overwrite) as (files, tell):
        made = measure([side], machine, config, tell=tell, rounds=rounds)
        baseline = comparison.baseline(made, machine=machine, command=job, commit=_commit(here))
        if not baseline.measured:
            raise UsageError(
                f"nothing was measured: {'; '.join(baseline.missing.values())}",
                remedy="change the metrics in the configuration",
            )
        files["output"].write(baseline)
        if pyperf:
            files["pyperf"].write_bytes(_raw(made, "head", machine, job))
    import statistics

    from dltune.gate.formats import quantity

    for one in baseline.measured:
        middle = quantity(statistics.median(one.values), one.unit)
        click.echo(f"{visible(one.metric)}: {middle}, median of {len(one.values)} rounds")
    for name, why in baseline.missing.items():
        click.echo(f"{visible(name)}: not measured: {visible(why, 400)}")
    click.echo(f"written to {output}; next: dltune gate check {output} -- CMD")


@command.command("check", epilog=example("dltune gate check baseline.json -- python train.py"))
@click.argument("baseline", type=PATH)
@_CONFIG
@click.option(
    "--measured", type=PATH, help="Check this baseline or pyperf file instead of a command."
)
@click.option(
    "--other-machine", is_flag=True, help="Compare with a baseline from another machine too."
)
@_outputs
@JOB
def check_command(
    baseline: Path,
    config_path: Path | None,
    measured: Path | None,
    other_machine: bool,
    outputs: _Outputs,
    job: tuple[str, ...],
) -> None:
    """Compare a command with an earlier baseline or a pyperf file.

    The baseline was measured at another time, so the result includes every change of the machine
    since then. On a noisy machine use `dltune gate ab`, which measures both sides in turns.
    """
    from dltune.gate import comparison, limits
    from dltune.gate.comparison import configuration
    from dltune.gate.measurement import measure
    from dltune.gate.verdicts import limits_for
    from dltune.schemas.gate import Revision
    from dltune.system import topology

    here = Path.cwd()
    config = configuration(here, config_path)
    _require_history(outputs)
    machine = topology.local()
    before = comparison.load_baseline(baseline)
    if measured and job:
        raise UsageError("--measured cannot be combined with a command", remedy="omit one of them")
    require_apart((config_path, baseline, measured), outputs.written())
    began = time.monotonic()
    with _claimed(outputs.files, outputs.overwrite) as (files, tell):
        if measured:
            now = comparison.load_baseline(measured)
            at = now.machine or machine
            note = comparison.require_machine(before, at, other=other_machine, whose=now.title)
            if now.command:
                comparison.require_command(before, now.command)
            made, head = comparison.compare(before, now, config), Revision(now.title, now.commit)
        else:
            if before.machine is None:
                raise UsageError(
                    f"{baseline} is a pyperf file; dltune cannot run its benchmarks",
                    remedy="measure them again with pyperf and pass the new file with --measured",
                )
            side = _here(here, job)
            note = comparison.require_machine(before, machine, other=other_machine)
            comparison.require_command(before, job)
            for limit in limits_for(config, before.kind):
                if limit.ratio is not None:
                    comparison.require_enough(before, limit.metric, config.confidence)
            made = measure(
                [side], machine, config, tell=tell, before=before.values, exact=before.exact
            )
            if made.kind != before.kind:
                raise UsageError(
                    f"{baseline} was timed {limits.TIMED[before.kind]}, but the command is now "
                    f"timed {limits.TIMED[made.kind]}",
                    remedy="record the baseline again",
                )
            head = Revision("this checkout", _commit(here))
        made.notes += [note] if note else []
        found = comparison.result(
            made,
            machine=machine,
            command=job or before.command or (str(measured),),
            base=Revision(before.title, before.commit),
            head=head,
            config=config,
            seconds=time.monotonic() - began,
        )
        found = _write(found, outputs, files, config, paired=False)
    _tell(found, outputs)


def _here(here: Path, job: Sequence[str]) -> Side:
    from dltune.gate.checkouts import Side

    if not job:
        raise UsageError(
            "no command to measure", remedy="add it after --, for example: -- python train.py"
        )
    return Side("head", "this checkout", job, here)


def _commit(here: Path) -> str | None:
    from dltune.gate import checkouts

    try:
        return checkouts.commit_of(checkouts.repository(here), "HEAD")
    except UsageError:
        return None


def _require_history(outputs: _Outputs) -> None:
    """Report an unreadable history before anything is measured."""
    from dltune.gate import verdicts

    if outputs.history:
        if outputs.history.resolve() in {path.resolve() for path in outputs.files.values()}:
            raise UsageError(
                f"{outputs.history} is used for two outputs", remedy="use two different files"
            )
        verdicts.load(outputs.history)
    elif "trend" in outputs.files:
        raise UsageError("--trend needs a history to draw", remedy="add --history FILE")


@contextlib.contextmanager
def _claimed(
    named: dict[str, Path], overwrite: bool
) -> Iterator[tuple[dict[str, Output], Callable[[str], None]]]:
    """Yield the claimed output files, and a function for progress; signals end the block."""
    from dltune.base.documents import claim
    from dltune.cli import terminal

    resolved = [path.resolve() for path in named.values()]
    for path in resolved:
        if resolved.count(path) > 1:
            raise UsageError(f"{path} is used for two outputs", remedy="use two different files")
    with contextlib.ExitStack() as stack:
        stack.enter_context(terminal.reported())
        files: dict[str, Output] = {
            name: stack.enter_context(claim(path, overwrite=overwrite))
            for name, path in named.items()
        }
        line = stack.enter_context(terminal.line())
        yield files, lambda text: line.show(text, (text,))


def _write(
    found: Result, outputs: _Outputs, files: dict[str, Output], config: Config, *, paired: bool
) -> Result:
    """The outputs, of the result with what its history adds to it; that result. `paired`: whether
    both sides of a round were measured together."""
    from dltune.gate import formats, verdicts
    from dltune.gate.formats import svg

    if outputs.history:
        entry = verdicts.entry(found, paired=paired)
        entries = [*verdicts.of_command(outputs.history, entry.command), entry]
        found = verdicts.judged(found, entries)
        if "trend" in files:
            files["trend"].write_bytes(svg(entries).encode())
    if "output" in files:
        files["output"].write(found)
    if "junit" in files:
        files["junit"].write_bytes(formats.junit(found))
    if "markdown" in files:
        files["markdown"].write_bytes(formats.markdown(found).encode())
    if "gitlab" in files:
        files["gitlab"].write_bytes(formats.gitlab(found, _shown_at(config)))
    if outputs.history:
        verdicts.append(outputs.history, entry)
    return found


def _shown_at(config: Config) -> str:
    """The file that sets the limits, as the repository names it."""
    import os

    from dltune.gate import checkouts

    if not config.limits:
        return "pyproject.toml"
    try:
        return os.path.relpath(config.source, checkouts.repository(Path.cwd()).top)
    except UsageError:
        return config.source


def _raw(made: Measurement, side: str, machine: Machine, job: Sequence[str]) -> bytes:
    from dltune.bench.step_times import encode

    name = "step_time" if made.kind == "steps" else "time"
    times = {name: [[s for turn in launch for s in turn] for launch in made.steps[side]]}
    return encode(times, cpu_model=machine.name, cores=len(machine.cores), command=job)


def _tell(found: Result, outputs: _Outputs) -> None:
    from dltune.cli import results
    from dltune.report.kinds.gate import view

    if outputs.github:
        from dltune.gate import formats

        click.echo(formats.github(found), nl=False, err=True)
    results.tell(found, view, as_json=outputs.as_json, written=outputs.written())
    if found.passed:
        return
    from dltune.gate.formats import sentence

    bad = [verdict for verdict in found.verdicts if not verdict.passed]
    raise GateFailed("; ".join(visible(sentence(v), 400) for v in bad))
