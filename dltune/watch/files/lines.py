"""The Python line of a thread while it waits for storage, as py-spy reports it."""

from __future__ import annotations

import resource
import threading
import time
from collections import Counter

from dltune.schemas.io import Line
from dltune.system.checks.software import can_use_py_spy
from dltune.system.proc.process import NoStack, own_line, stacks


class WaitingLines:
    """Samples of threads that were just seen waiting. A sample is taken in the background, at the
    lowest priority, and never stops the job: a sample of a changing stack is lost."""

    def __init__(self) -> None:
        self._command, found = can_use_py_spy()
        self.failure = None if self._command else found
        self._found: Counter[str] = Counter()
        self._worker: threading.Thread | None = None
        self.cpu = 0.0  # CPU seconds of the samples

    @property
    def ready(self) -> bool:
        return self._command is not None and (self._worker is None or not self._worker.is_alive())

    def look(self, pid: int, tid: int) -> None:
        """Begin a sample of a process, for the line of `tid`; of its main thread when `tid` runs no
        Python (the threads of an input pipeline do not)."""
        assert self._command is not None
        arguments = (self._command, pid, tid)
        self._worker = threading.Thread(target=self._look, args=arguments, daemon=True)
        self._worker.start()

    def finish(self) -> None:
        """Wait for a sample that is under way."""
        if self._worker is not None:
            self._worker.join()

    def lines(self) -> tuple[Line, ...]:
        """Return the lines, the most frequent first."""
        total = self._found.total()
        return tuple(Line(where, n / total, n) for where, n in self._found.most_common())

    def _look(self, command: str, pid: int, tid: int) -> None:
        began, before = time.monotonic(), _children()
        try:
            found = {thread.os_thread_id: thread for thread in stacks(command, pid, gently=True)}
        except NoStack as error:
            self.failure = self.failure or str(error)
            return
        finally:
            # the job can end just meanwhile, and its time be counted here
            self.cpu += min(_children() - before, time.monotonic() - began)
        for wanted in (tid, pid):
            if wanted in found and (where := own_line(found[wanted].frames)):
                self._found[where] += 1
                return


def _children() -> float:
    """Return the CPU seconds of the child processes that this process has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
