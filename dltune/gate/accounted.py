"""Runs a command and writes what the kernel accounts to it, as a small process of its own.

A process that forks hands its own resident size on as the child's first peak, so that the peak of a
small command started by a large process is the large one's. Run as a script, without dltune and
without site: `accounted.py DESCRIPTOR COUNTER COMMAND...`; COUNTER, a performance counter that
counts this process and its children, is read around the command (-1: there is none).
"""

import json
import os
import sys
import time


def main() -> None:
    descriptor, counter, command = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    counts = counter >= 0
    for one in (descriptor, counter)[: 1 + counts]:
        os.set_inheritable(one, False)
    counted = _count(counter) if counts else 0
    began = time.perf_counter()
    child = os.fork()
    if child == 0:
        try:
            os.execvp(command[0], command)
        except OSError as error:
            _tell(descriptor, {"errno": error.errno})
        os._exit(127)
    _, status, usage = os.wait4(child, 0)
    values = {
        "time": time.perf_counter() - began,
        "cpu_time": usage.ru_utime + usage.ru_stime,
        "peak_bytes": usage.ru_maxrss * 1024.0,
        "context_switches": float(usage.ru_nvcsw + usage.ru_nivcsw),
        "page_faults": float(usage.ru_minflt + usage.ru_majflt),
    }
    if counts:
        values["instructions"] = float(_count(counter) - counted)
    _tell(descriptor, {"exit_code": os.waitstatus_to_exitcode(status), "values": values})


def _count(counter: int) -> int:
    return int.from_bytes(os.read(counter, 8), "little")


def _tell(descriptor: int, told: dict[str, object]) -> None:
    """A line of JSON; the first counts."""
    os.write(descriptor, json.dumps(told).encode() + b"\n")


if __name__ == "__main__":
    main()
