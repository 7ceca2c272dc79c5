"""Start a command in a separate process group, receive its processes' messages, and end it.

The job is not edited: the bootstrap comes to its Python interpreters through PYTHONPATH, and finds
dltune through the socket named in DLTUNE_SOCKET. The file `hooks` next to the socket lists the
modules that the bootstrap loads for frameworks and systems.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from dltune import extensions
from dltune.base.errors import UsageError
from dltune.frameworks.capabilities import framework
from dltune.job import protocol
from dltune.job.protocol import encoded
from dltune.job.record import trains
from dltune.job.subprocesses import python_path
from dltune.system.proc.stat import Tree

log = logging.getLogger(__name__)

BOOTSTRAP = Path(__file__).resolve().parents[1] / "frameworks" / "bootstrap"
# time for the processes of a job to end after SIGTERM before they are killed
GRACE_SECONDS = 10.0
# between two checks of its descendants meanwhile
LOOK_SECONDS = 0.25
# and to be gone once they were killed, on however busy a machine
KILLED_SECONDS = 10.0
# temporary files of TensorFlow's and folders of torchrun's
LEFTOVERS = ("__autograph_generated_file", "torchelastic_")
# bytes; a graph of a hundred thousand nodes takes a tenth of it
LONGEST_MESSAGE = 1 << 28


class Process:
    """One process of the job in which the plugin reported in."""

    def __init__(self, connection: socket.socket, hello: protocol.Plugin) -> None:
        self.hello = hello
        self.pid = hello.pid
        self.trains = False  # it has reported a graph that does
        self._connection = connection

    def order(self, lines: Sequence[str]) -> None:
        """Send lines of orders; a process that has ended meanwhile does not mind."""
        log.debug("to pid %d: %d lines of orders, %.200s ...", self.pid, len(lines), lines[:1])
        with contextlib.suppress(OSError):
            self._connection.sendall(encoded(lines))


@dataclass(frozen=True)
class Event:
    """A message, and the process it came from (None before its plugin greeted)."""

    process: Process | None
    message: protocol.Message


class Job:
    """A running job. Use as a context manager: leaving the block ends what is still running."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        answer: Callable[[protocol.Python], dict[str, object]] = lambda _: {},
        greet: Callable[[Process], list[str]] = lambda _: [],
        heard: Callable[[Event], None] = lambda _: None,
        environment: dict[str, str] | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        folder: Path | None = None,
        plain: bool = False,
    ) -> None:
        """`answer` replies to an interpreter that starts; `greet` gives a plugin its first orders.

        `heard` receives each event before the iteration over `events` does.
        `stdout` and `stderr` are the descriptors that become the job's own (None: inherited),
        `folder` where it starts (None: here). A `plain` job is started without the bootstrap, as if
        dltune were not there.
        Raises UsageError when there is no command or it cannot be started.
        """
        if not command:
            raise UsageError(
                "no command to run",
                remedy="add the job's command after --, as in: -- python train.py",
            )
        require_executable(command[0])
        self.command = tuple(command)
        self._answer = answer
        self._greet = greet
        self._heard = heard
        self._folder = Path(tempfile.mkdtemp(prefix="dltune-"))
        self._selector = selectors.DefaultSelector()
        self._buffers: dict[socket.socket, bytearray] = {}
        self._processes: dict[socket.socket, Process] = {}
        self._unheeded: deque[Event] = deque()  # read, and not yet yielded
        self._listener = socket.socket(socket.AF_UNIX)
        try:
            self._listener.bind(str(self._folder / "socket"))
        except OSError as error:
            self._clean_up()
            raise UsageError(
                f"cannot listen at {self._folder / 'socket'}: {error}",
                remedy="set TMPDIR to a folder with a shorter name",
            ) from None
        self._listener.listen(socket.SOMAXCONN)  # ranks start together
        self._selector.register(self._listener, selectors.EVENT_READ)
        try:
            self._child = subprocess.Popen(
                self.command,
                env=None if plain else self._environment(environment or {}),
                stdout=stdout,
                stderr=stderr,
                cwd=folder,
                start_new_session=True,
            )
        except OSError as error:
            self._clean_up()
            raise UsageError(
                f"cannot start {command[0]}: {error.strerror}",
                remedy="check that the command runs without dltune",
            ) from None

    def _environment(self, extra: dict[str, str]) -> dict[str, str]:
        """Return the job's environment, in which the bootstrap finds dltune and its hooks."""
        hooks = [hook._asdict() for hook in extensions.hooks()]
        (self._folder / "hooks").write_bytes(msgspec.json.encode(hooks))
        environment = {**os.environ, **extra}
        environment["PYTHONPATH"] = python_path(BOOTSTRAP, environment=environment)
        environment["DLTUNE_SOCKET"] = str(self._folder / "socket")
        return environment

    def __enter__(self) -> Job:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            # a job that ended by itself may have left processes on purpose, as it would without us
            if self._child.poll() is None or (error is not None and self._group_alive()):
                self.end()
        finally:
            self._clean_up()

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def exit_code(self) -> int | None:
        """The job's exit code as a shell reports it (128 + signal); None while it runs."""
        code = self._child.poll()
        return code if code is None or code >= 0 else 128 - code

    def events(self, tick: float) -> Iterator[Event | None]:
        """Messages as they come, and None whenever `tick` seconds have passed without any.

        Ends when the job has ended and nothing is left to read. Who stops listening may listen
        again, with another `tick`, and misses nothing.
        """
        while True:
            while self._unheeded:
                yield self._unheeded.popleft()
            ended = self._child.poll() is not None
            ready = self._selector.select(0.05 if ended else tick)
            for key, _ in ready:
                if key.data:
                    self._selector.unregister(key.fileobj)
                    key.data()
                else:
                    for event in self._read(key.fileobj):
                        self._heard(event)
                        self._unheeded.append(event)
            if not ready:
                if ended:
                    return
                yield None

    def watch(self, descriptor: int, ready: Callable[[], None]) -> None:
        """Call `ready` once, within `events`, when `descriptor` can be read."""
        self._selector.register(descriptor, selectors.EVENT_READ, ready)

    def _read(self, source: object) -> Iterator[Event]:
        assert isinstance(source, socket.socket)
        if source is self._listener:
            connection, _ = self._listener.accept()
            self._buffers[connection] = bytearray()
            self._selector.register(connection, selectors.EVENT_READ)
            return
        if source not in self._buffers:
            return  # it was released for a process that was read just before
        try:
            data = source.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            self._forget(source)
            return
        buffer = self._buffers[source]
        buffer += data
        if b"\n" not in data:
            if len(buffer) > LONGEST_MESSAGE:
                self._forget(source)
            return
        *lines, rest = bytes(buffer).split(b"\n")
        self._buffers[source] = bytearray(rest)
        for line in lines:
            try:
                message = protocol.decode(line)
            except msgspec.DecodeError:  # not dltune's message: ignore its content
                self._forget(source)
                return
            log.debug("%s: %d bytes", type(message).__name__, len(line))
            if isinstance(message, protocol.Plugin):
                if self._is_let_go(message):
                    with contextlib.suppress(OSError):
                        source.sendall(b"ready\n")
                    self._forget(source)
                    return
                process = Process(source, message)
                self._processes[source] = process
                process.order([*self._greet(process), "ready"])
            elif source not in self._processes:
                reply = self._answer(message) if isinstance(message, protocol.Python) else {}
                with contextlib.suppress(OSError):
                    source.sendall(msgspec.json.encode(reply) + b"\n")
            told_by = self._processes.get(source)
            if told_by and not told_by.trains and isinstance(message, protocol.Graph):
                told_by.trains = trains(message)
            yield Event(told_by, message)

    def _is_let_go(self, hello: protocol.Plugin) -> bool:
        """Return True if the process already works with another framework. A plugin that is let go
        does nothing. A plugin that has only been imported, or reads the data, makes room for a
        plugin that comes when the process trains."""
        for source, one in list(self._processes.items()):
            if one.pid == hello.pid and one.hello.framework != hello.framework:
                if one.trains or framework(hello.framework).attaches_on_import:
                    return True
                self._forget(source)
        return False

    def _forget(self, source: socket.socket) -> None:
        self._selector.unregister(source)
        del self._buffers[source]
        self._processes.pop(source, None)
        source.close()

    def end(self) -> None:
        """End the whole process group, and its descendants: SIGTERM, a grace period, then
        SIGKILL. Launchers such as torchrun, which give their workers separate groups, end them
        first; their remaining processes are asked once the group has ended.

        Files that a job writes while it is ended this way are as complete as its own handling of
        SIGTERM makes them; TensorFlow's checkpoints are renamed into place when complete. A second
        interrupt ends the grace period at once."""
        log.debug("ending the job, process group %d", self._child.pid)
        tree = self._tree()
        asked = False
        try:
            self.pass_on(signal.SIGTERM)
            until = time.monotonic() + GRACE_SECONDS
            looked = time.monotonic()
            while time.monotonic() < until:
                if not self._group_alive():
                    left = tree.refresh() if tree else []
                    if not left:
                        break
                    if not asked:
                        _signal(left, signal.SIGTERM)
                        asked = True
                elif tree and time.monotonic() - looked > LOOK_SECONDS:
                    tree.refresh()
                    looked = time.monotonic()
                for key, _ in self._selector.select(0.05):  # who cannot send last words cannot end
                    if key.data:
                        self._selector.unregister(key.fileobj)
                        continue
                    for _ in self._read(key.fileobj):
                        pass
        finally:
            self.pass_on(signal.SIGKILL)
            _signal(tree.refresh() if tree else [], signal.SIGKILL)
            self._child.wait()
            until = time.monotonic() + KILLED_SECONDS
            while tree and tree.refresh() and time.monotonic() < until:
                time.sleep(0.005)
            self._remove_leftovers()

    def _remove_leftovers(self) -> None:
        """Remove temporary files that the processes would have removed at their end. Folders stay
        if they hold a file with content, such as a log."""
        for link in self._folder.glob("leftover-*"):
            with contextlib.suppress(OSError):
                path = link.readlink()
                if not path.name.startswith(LEFTOVERS):
                    continue
                if not path.is_dir():
                    path.unlink()
                elif not any(file.is_file() and file.stat().st_size for file in path.rglob("*")):
                    shutil.rmtree(path)

    def _tree(self) -> Tree | None:
        """Return the job's tree; None if the job has ended: its pid can be another process's."""
        if self._child.poll() is not None:
            return None
        with contextlib.suppress(UsageError):
            return Tree(self.pid)
        return None

    def pass_on(self, number: int) -> None:
        """Send the whole process group a signal, such as a signal that dltune received."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, number)

    def tell(self, number: int) -> None:
        """Send the command itself a signal."""
        if self._child.poll() is None:
            os.kill(self.pid, number)

    def _group_alive(self) -> bool:
        self._child.poll()
        try:
            os.killpg(self._child.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True

    def _clean_up(self) -> None:
        for source in list(self._buffers):
            self._forget(source)
        self._selector.close()
        self._listener.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def _signal(pids: Sequence[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def require_enabled() -> None:
    """Raise UsageError if DLTUNE_DISABLE=1 keeps dltune out of every job."""
    if os.environ.get("DLTUNE_DISABLE") == "1":
        raise UsageError(
            "DLTUNE_DISABLE=1 is set, so dltune does not attach to any job",
            remedy="unset DLTUNE_DISABLE",
        )


def require_executable(program: str) -> None:
    """Raise UsageError unless `program` can be started."""
    if shutil.which(program):
        return
    if os.sep in program and Path(program).exists():
        what = "is a folder" if Path(program).is_dir() else "is not executable"
        raise UsageError(
            f"cannot start {program}: the file {what}",
            remedy="name the interpreter too, as in: -- python train.py",
        )
    raise UsageError(
        f"command not found: {program}",
        remedy="check the spelling, or name the program with its path",
    )
