"""The command line: one thin file per verb, imported only when it is called.

Results go to stdout, progress and remarks to stderr.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys

import click

from dltune import __version__
from dltune.errors import DltuneError, UsageError

# group -> command -> its help in one line, so that `dltune --help` imports no command
GROUPS = {
    "Start here": {
        "diagnose": "Find out why training is slow, and how to fix it.",
        "tune": "Find the settings under which a job runs fastest.",
        "run": "Run an unmodified job under a plan.",
    },
    "Measure": {
        "profile": "Measure a training step op by op, at each thread count.",
        "bench": "Compare a plan with other settings of a job.",
        "io-report": "Find out why reading the data is slow.",
        "horovod-report": "Show how communication threads use the cores of ranks.",
        "doctor": "Check what dltune can measure on this machine.",
    },
    "Decide": {
        "plan": "Make a plan from a profile: threads, memory, ranks.",
        "model": "Train a regression model that predicts op times.",
    },
    "Read": {
        "show": "Print a saved profile.",
        "report": "Write an HTML page, or a timeline for Perfetto.",
        "compare": "Compare two profiles, or two benchmark results.",
    },
    "Keep it fast": {
        "gate": "Fail a build when a command has become slower.",
    },
    "Data": {
        "lmdb": "Inspect and check an LMDB file.",
    },
}
COMMANDS = {name: text for group in GROUPS.values() for name, text in group.items()}


class _Verbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(
            f"dltune.cli.{name.replace('-', '_')}"
        ).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name and name not in COMMANDS and not name.startswith("-"):
            import difflib

            near = difflib.get_close_matches(name, COMMANDS, n=1)
            raise UsageError(
                f"there is no command {name!r}",
                remedy=f"did you mean dltune {near[0]}?" if near else "dltune --help lists all",
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))
        for group, commands in GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(name.ljust(width), text) for name, text in commands.items()])


@click.command(
    cls=_Verbs,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\b\nExample:\n  dltune diagnose -- python train.py\n\n"
    "dltune COMMAND --help shows a command's options.",
)
@click.version_option(__version__, prog_name="dltune")
@click.option(
    "--debug", is_flag=True, help="Log what dltune does to stderr (DLTUNE_LOG=FILE: to a file)."
)
def cli(debug: bool) -> None:
    """Find out why deep-learning training is slow on CPU nodes, make a plan that speeds it up, and
    run the unmodified job under that plan."""
    file = os.environ.get("DLTUNE_LOG")
    if debug or file:
        from dltune.cli import debug_log

        debug_log.start(file, sys.argv[1:])


def _logged() -> None:
    try:
        cli.main(standalone_mode=False)
    except BaseException as error:
        if debug_log := sys.modules.get("dltune.cli.debug_log"):
            debug_log.log.debug("ended by %s", type(error).__name__, exc_info=error)
        raise


def main() -> None:
    """Run the command line; print errors for people and exit with the error's own code."""
    try:
        _logged()
    except click.exceptions.Exit as exit_:
        sys.exit(exit_.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except DltuneError as error:
        click.echo(f"dltune: {error}", err=True)
        if error.remedy:
            click.echo(f"        {error.remedy}", err=True)
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("dltune: interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        # what is left in its buffer must not be tried again on the way out
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        click.echo(f"dltune: cannot write {error.filename or 'output'}: {error.strerror}", err=True)
        sys.exit(2)
