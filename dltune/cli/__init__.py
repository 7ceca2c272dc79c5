"""The command line: each command is imported only when it is called.

Results go to stdout, progress and remarks to stderr.
"""

from __future__ import annotations

import errno
import os
import sys

import click

from dltune import __version__, extensions
from dltune.base.errors import DltuneError, UsageError
from dltune.cli.options import example

GROUPS = ("Start here", "Measure", "Decide", "Read", "Keep it fast", "Data")


def groups() -> dict[str, dict[str, str]]:
    """Return the line of each command in `dltune --help`, by group."""
    found: dict[str, dict[str, str]] = {group: {} for group in GROUPS}
    for extension in extensions.extensions():
        for name, command in extension.commands.items():
            found.setdefault(command.group, {})[name] = command.summary
    return {group: commands for group, commands in found.items() if commands}


class _Verbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for commands in groups().values() for name in commands]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        registered: extensions.Command | None = extensions.find("commands", name)
        if registered is None:
            return None
        command: click.Command = extensions.load(registered.target)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name and not name.startswith("-") and not extensions.find("commands", name):
            import difflib

            near = difflib.get_close_matches(name, self.list_commands(ctx), n=1)
            raise UsageError(
                f"there is no command {name!r}",
                remedy=f"did you mean dltune {near[0]}?" if near else "dltune --help lists all",
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.list_commands(ctx)))
        for group, commands in groups().items():
            with formatter.section(group):
                formatter.write_dl([(name.ljust(width), text) for name, text in commands.items()])
        if failures := extensions.failures():
            with formatter.section("Extensions that cannot be used"):
                formatter.write_dl(list(failures.items()))


@click.command(
    cls=_Verbs,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=example("dltune diagnose -- python train.py")
    + "\n\ndltune COMMAND --help shows a command's options.",
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
        # the rest of its buffer must not be tried again on the way out
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        click.echo(f"dltune: cannot write {error.filename or 'output'}: {error.strerror}", err=True)
        sys.exit(2)
