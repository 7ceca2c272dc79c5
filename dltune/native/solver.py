"""Run ortools in a separate process: next to other native libraries it has ended the process that
it was loaded into.

The separate process is `python -m dltune.native.solver`: it reads a pickled function and its
arguments, and writes the function's result.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, TypeVar

from dltune.base.errors import DltuneError, UsageError

T = TypeVar("T")

GRACE = 60.0  # seconds in addition to its limit, to start and to send the result
_PR_SET_PDEATHSIG = 1


class SolverFailed(DltuneError):
    """The solver's process ended without a result."""


def installed() -> bool:
    return find_spec("ortools") is not None


def require() -> None:
    """Raise UsageError if ortools is not installed."""
    if not installed():
        raise UsageError(
            "an optimal plan needs ortools, which is not installed",
            remedy="pip install 'dltune[memory]'",
        )


def run(function: Callable[..., T], *arguments: Any, limit: float) -> T:
    """Return the result of a module's function there. It is ended `GRACE` seconds after `limit`,
    or with this process. Raises SolverFailed, and UsageError where ortools is not installed."""
    require()
    try:
        child = subprocess.run(
            [sys.executable, "-P", "-m", "dltune.native.solver"],
            input=pickle.dumps((function, arguments)),
            capture_output=True,
            timeout=limit + GRACE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
    except subprocess.TimeoutExpired:
        raise SolverFailed(f"the solver exceeded its limit of {limit:.0f} s") from None
    except OSError as error:
        raise SolverFailed(f"the solver cannot be started: {error.strerror}") from None
    if child.returncode < 0:
        raise SolverFailed(f"the solver was killed by {signal.Signals(-child.returncode).name}")
    if child.returncode:
        if said := child.stderr.decode(errors="replace").split("\n")[-2:-1]:
            raise SolverFailed(f"the solver failed: {said[0]}")
        raise SolverFailed(f"the solver ended with exit code {child.returncode}")
    found: T = pickle.loads(child.stdout)
    return found


def main() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the waiting process ends it
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of a library is no result
    function, arguments = pickle.load(sys.stdin.buffer)
    with results:
        pickle.dump(function(*arguments), results)


if __name__ == "__main__":
    main()
