"""The ranks of a job, observed while `dltune diagnose` watches it."""

from __future__ import annotations

import threading

from dltune.base.errors import UsageError
from dltune.frameworks.capabilities import Framework
from dltune.job.rank_layout import is_rank
from dltune.system.proc import process, stat
from dltune.systems.ranks.horovod.watch import document
from dltune.systems.ranks.horovod.watch.watch import Watch
from dltune.systems.ranks.schemas.horovod import Horovod


def start(root: int) -> RankProbe | None:
    """Return a probe for the job with this root process if it has several ranks."""
    return RankProbe(root) if any(map(_is_a_rank, stat.Tree(root).refresh())) else None


class RankProbe:
    """Watches the threads of each rank until `end`."""

    def __init__(self, root: int) -> None:
        self._watch = Watch(stat.Tree(root))
        self._over = threading.Event()
        self._thread = threading.Thread(
            target=self._watch.run, args=(None, self._over.is_set, lambda: None), daemon=True
        )
        self._thread.start()

    def end(self, framework: Framework) -> Horovod | None:
        """Return the report on the ranks. A framework that exchanges gradients itself needs no
        Horovod, so ranks without it are no reason there."""
        self._over.set()
        self._thread.join()
        with self._watch as watch:
            try:
                return document.assemble(watch, (), None, False)
            except UsageError:
                if framework.exchanges_buckets:
                    return None
                raise


def _is_a_rank(pid: int) -> bool:
    """Return whether a process is one of several ranks, as far as its environment is readable."""
    try:
        return is_rank(process.environment(pid))
    except OSError:
        return False
