"""What a rank says when it has lost another one."""

from __future__ import annotations

import re

# through Horovod, gloo or MPI
_WORDS = re.compile(
    r"Horovod has been shut down|HorovodInternalError|Gloo \w+ failed|[Cc]onnection closed by peer"
    r"|[Cc]onnection reset by peer|Broken pipe|MPI_ERR"
)


def tells_of_another(error: str) -> bool:
    """Whether an exception of a rank only says that another rank is gone."""
    return _WORDS.search(error) is not None
