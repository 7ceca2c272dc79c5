"""Declarations that several commands share: types, options, the job's command, and examples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

PATH = click.Path(path_type=Path)
JOB = click.argument("job", nargs=-1, type=click.UNPROCESSED, metavar="-- CMD...")


def example(line: str) -> str:
    """Return the epilog of a command: an example, which is one command line."""
    return f"\b\nExample:\n  {line}"


def top_option(text: str, default: int | None = None) -> Callable[[F], F]:
    """Return the option for the number of ops to print; `text`: its help."""
    return click.option(
        "--top",
        type=click.IntRange(min=1),
        default=default,
        show_default=default is not None,
        metavar="N",
        help=text,
    )


def wait_option(job: str) -> Callable[[F], F]:
    """Return the option for the wait until the first step of `job`, such as "the job"."""
    return click.option(
        "--wait",
        type=click.FloatRange(min=1.0),
        default=120.0,
        show_default=True,
        metavar="SECONDS",
        help=f"Give up if {job} sends no message for SECONDS before its first step.",
    )


def pid_option(text: str) -> Callable[[F], F]:
    """Return the option for a process that already runs; `text`: its help."""
    return click.option("--pid", type=click.IntRange(min=1), metavar="PID", help=text)


def seconds_option(text: str) -> Callable[[F], F]:
    """Return the option for the duration of a watch; `text`: its help."""
    return click.option("--seconds", type=click.FloatRange(min=1.0), metavar="SECONDS", help=text)


def report_options(overwrite: str) -> Callable[[F], F]:
    """Return the options for the report on a watched job, and the job's command; `overwrite`: the
    help of the option --overwrite."""
    declarations = (
        JOB,
        click.option("--json", "as_json", is_flag=True, help="Print the report as JSON."),
        click.option("--overwrite", is_flag=True, help=overwrite),
        click.option(
            *("-o", "--output"), type=PATH, metavar="FILE", help="Write the report to FILE as JSON."
        ),
    )

    def declare(function: F) -> F:
        for declaration in declarations:
            function = declaration(function)
        return function

    return declare
