"""MPI programs in C that behave like Horovod's background thread, under the preloaded library."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import two_ranks

from dltune.systems.ranks.horovod.preload import interposer
from dltune.systems.ranks.horovod.preload import interposer as counts

HERE = Path(__file__).parent
# a hang ends here, and nothing else: these programs take a second or two on an idle machine
WAIT = 240.0


@dataclass(frozen=True)
class Ended:
    code: int
    stdout: str
    stderr: str
    counts: list[counts.Counts]


@pytest.fixture(scope="session")
def preloaded() -> Path:
    if reason := two_ranks.missing("mpi"):
        pytest.skip(reason)
    return interposer.build(Path(two_ranks.PYTHON).parent / "mpirun")


@pytest.fixture(scope="session")
def mpi(preloaded: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Ended]:
    """`mpi("program", *arguments, ranks=2, nbcs="3e-5", gs="1", rest="0.05")` runs program.c to its
    end."""
    folder = tmp_path_factory.mktemp("mpi")
    environment = two_ranks.environment()
    mpicc = shutil.which("mpicc", path=environment["PATH"])

    def run(
        program: str,
        *arguments: object,
        ranks: int = 2,
        nbcs: str | None = None,
        gs: str | None = None,
        rest: str | None = None,
        node: str | None = None,
    ) -> Ended:
        built = folder / program
        if not built.exists():
            source = HERE / f"{program}.c"
            flags = ("-O1", "-Wall", "-Wextra", "-Werror", "-pthread")
            subprocess.run([mpicc, *flags, "-o", built, source], check=True, env=environment)
        told = folder / f"{len(list(folder.iterdir()))}"
        told.mkdir()
        chosen = interposer.variables(preloaded, None, environment, told)
        told_of = {"NBCS": nbcs, "GS": gs, "REST": rest, "NODE": node}
        chosen |= {f"DLTUNE_{name}": value for name, value in told_of.items() if value is not None}
        command = ["mpirun", "-np", str(ranks), "--oversubscribe", "--bind-to", "none"]
        with open(told / "out", "wb") as out, open(told / "err", "wb") as err:
            code = subprocess.run(
                [*command, built, *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=environment | chosen,
                timeout=WAIT,
            ).returncode
        stdout, stderr = ((told / name).read_text(errors="replace") for name in ("out", "err"))
        return Ended(code, stdout, stderr, counts.read(told))

    return run
