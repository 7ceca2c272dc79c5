"""What every job takes, `--steps` and `--losses`, and where its losses go."""

import argparse
import contextlib
from collections.abc import Callable, Iterator

FOREVER = 100_000


def parser(description: str | None, *, steps: int = FOREVER) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--steps", type=int, default=steps)
    made.add_argument("--losses", metavar="FILE", help="write every step's loss, one a line")
    return made


@contextlib.contextmanager
def recording(path: str | None) -> Iterator[Callable[[float], None]]:
    """A function that writes a loss as it is; each is on disk before the next step."""
    if path is None:
        yield lambda _: None
        return
    with open(path, "w", buffering=1) as file:
        yield lambda loss: print(repr(float(loss)), file=file)
