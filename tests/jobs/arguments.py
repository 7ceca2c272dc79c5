"""What every job takes, how it records its losses, and when it has trained enough."""

import argparse
import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

FOREVER = 100_000


class _Enough(Exception):
    pass


def parser(description: str | None, *, steps: int = FOREVER) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--steps", type=int, default=steps)
    made.add_argument("--losses", metavar="FILE", help="write every step's loss, one a line")
    made.add_argument("--until", metavar="FILE", help="train no further once this file exists")
    made.add_argument("--pause", type=float, default=0.0, help="seconds between two steps")
    made.add_argument("--later", type=float, help="those after the first 20, which dltune needs")
    return made


@contextlib.contextmanager
def recording(args: argparse.Namespace) -> Iterator[Callable[[float], None]]:
    """A function that writes a loss as it is; each is on disk before the next step."""
    steps = 0
    with open(args.losses or os.devnull, "w", buffering=1) as file:

        def record(loss: float) -> None:
            nonlocal steps
            steps += 1
            if args.losses:
                print(repr(float(loss)), file=file)
            if args.until and Path(args.until).exists():
                raise _Enough
            time.sleep(args.pause if args.later is None or steps < 20 else args.later)

        with contextlib.suppress(_Enough):
            yield record
