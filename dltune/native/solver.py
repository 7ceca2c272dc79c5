"""ortools in a process of its own: beside other native libraries it has ended the one that it was
loaded into.

That process is `python -m dltune.native.solver`: it reads a pickled function and its arguments, and
writes what the function gives.
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

GRACE = 20.0  # seconds beside its limit, to start and to tell what was found
_PR_SET_PDEATHSIG = 1


class SolverFailed(DltuneError):
    """The solver's process ended without a result."""


def installed() -> bool:
    return find_spec("ortools") is not None


def require() -> None:
    """Raises UsageError where ortools is not installed."""
    if not installed():
        raise UsageError(
            "an optimal plan needs ortools, which is not installed",
            remedy="pip install 'dltune[memory]'",
        )


def run(function: Callable[..., T], *arguments: Any, limit: float) -> T:
    """What a function of a module gives there. Ended `GRACE` seconds after `limit`, or with this
    process. Raises SolverFailed, and UsageError where ortools is not installed."""
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
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is ended by who waits for it
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no result
    function, arguments = pickle.load(sys.stdin.buffer)
    with results:
        pickle.dump(function(*arguments), results)


if __name__ == "__main__":
    main()
