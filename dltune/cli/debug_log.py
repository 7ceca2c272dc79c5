"""The debug log: dltune's actions with times, for a report of a problem.

Modules log to `logging.getLogger(__name__)`; without `--debug` and DLTUNE_LOG nothing is written.
The log holds command lines and file names, and of the environment only the variables DLTUNE_*.
"""

from __future__ import annotations

import logging
import os
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence

from dltune import __version__
from dltune.base.errors import UsageError

VARIABLE = "DLTUNE_LOG"
FORMAT = "%(asctime)s.%(msecs)03d %(process)d %(name)s: %(message)s"
TIME_FORMAT = "%Y-%m-%d %H:%M:%S"

log = logging.getLogger(__name__)


def start(file: str | None, arguments: Sequence[str]) -> None:
    """Log to `file`, or to stderr without one, from here on; `arguments`: dltune's own.

    Raises UsageError if the file cannot be written.
    """
    try:
        handler = logging.FileHandler(file) if file else logging.StreamHandler()
    except OSError as error:
        raise UsageError(
            f"{VARIABLE}: cannot write {file}: {error.strerror}",
            remedy=f"set {VARIABLE} to a file in a folder that exists and can be written",
        ) from None
    handler.setFormatter(logging.Formatter(FORMAT, TIME_FORMAT))
    root = logging.getLogger("dltune")
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    root.propagate = False
    log.debug("dltune %s, Python %s, %s", __version__, platform.python_version(), sys.executable)
    log.debug("%s, %s CPUs", platform.platform(), os.cpu_count())
    log.debug("started as: dltune %s", shlex.join(arguments))
    for name in sorted(os.environ):
        if name.startswith("DLTUNE_"):
            log.debug("environment: %s=%s", name, os.environ[name])
    sys.addaudithook(_log_process)


def _log_process(event: str, values: tuple[object, ...]) -> None:
    """Log each process that dltune starts: the command and the names of changed variables."""
    if event != "subprocess.Popen":
        return
    program, command, folder, environment = values
    words = [str(word) for word in command] if isinstance(command, list | tuple) else [str(command)]
    changed = _changed(environment) if isinstance(environment, Mapping) else []
    log.debug(
        "starting a process: %s%s%s",
        shlex.join(words) or program,
        f", in {folder}" if folder else "",
        f", with other values of {', '.join(changed)}" if changed else "",
    )


def _changed(environment: Mapping[object, object]) -> list[str]:
    """Names of the variables whose values differ from dltune's own environment."""
    return sorted(
        os.fsdecode(name)
        for name, value in environment.items()
        if isinstance(name, str | bytes)
        and isinstance(value, str | bytes)
        and os.environ.get(os.fsdecode(name)) != os.fsdecode(value)
    )
