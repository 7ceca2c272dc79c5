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
from dltune.errors import DltuneError

# verb -> the one-line help, so that `dltune --help` imports no command
COMMANDS = {
    "diagnose": "Why training is slow here, and what to do: the most costly first.",
    "doctor": "What can be measured and enforced on this machine.",
    "profile": "Measure an unmodified training job, op by op and thread count by thread count.",
    "show": "A saved profile again: its steps, its ops, and why they take their time.",
    "model": "Train and test a regression model of op times, the paper's first one.",
    "plan": "Decide threads, placement and co-runs from a profile.",
    "run": "Run an unmodified job with a plan enforced.",
    "bench": "Compare a plan with the framework's own settings, taking turns.",
    "report": "One HTML page of profiles, plans and results; timelines for Perfetto.",
    "tune": "Find the settings around the ops under which a job is fastest.",
    "compare": "What got slower or faster between two profiles or two bench results.",
    "io-report": "Why reading the data is slow: a running job, or a file read in every way.",
    "horovod-report": "What Horovod's background threads do to a job of several ranks.",
    "gate": "Hold performance limits: against another revision, or against a baseline.",
    "lmdb": "Where the records of an LMDB file lie, its keys, and whether it is sound.",
}


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

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="dltune")
def cli() -> None:
    """Find out why deep-learning training is slow on CPU nodes, plan what makes it faster, and run
    the unmodified job with that plan."""


def main() -> None:
    """Console entry: prints what a person must know and exits with the error's own code."""
    try:
        cli.main(standalone_mode=False)
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
