"""Where the ranks of a job meet: at a port that no other job has, so that several run at once."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from dltune.job.ranks import free_address
from dltune.system.ranks import is_rank

# torchrun's option, accelerate's, and those of many a script
_PORTS = ("--master-port", "--main-process-port")
_ENDPOINT, _BACKEND = "--rdzv-endpoint", "--rdzv-backend"
_NODES = ("--nnodes", "--num-machines")
_ONE_NODE = ("1", "1:1")
# torchrun, after `python -m`
TORCHRUN = ("torch.distributed.run", "torch.distributed.launch")
# as in `env MASTER_PORT=29500 python train.py`
_VARIABLE = re.compile(r"\bMASTER_PORT=[1-9]\d*")


def with_own_port(
    command: Sequence[str], variables: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """The command with a free port in place of the one that it names, and the variables with those
    that name the port to launchers and scripts that take it from them. `variables` stand beside
    this process's own. Ranks on several nodes, and a rank itself, meet where they were told."""
    environment = {**os.environ, **variables}
    nodes = [*_values(command, *_NODES), environment.get("PET_NNODES", "1")]
    if is_rank(environment) or any(number not in _ONE_NODE for number in nodes):
        return list(command), dict(variables)
    address = free_address()
    port = address.rpartition(":")[2]
    backends = [*_values(command, _BACKEND), environment.get("PET_RDZV_BACKEND", "")]
    elsewhere = any("etcd" in backend for backend in backends)
    words = [_VARIABLE.sub(f"MASTER_PORT={port}", word) for word in command]
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        if equals:
            words[place] = f"{name}={_moved(name, value, port, elsewhere)}"
        elif place + 1 < len(words):
            words[place + 1] = _moved(name, words[place + 1], port, elsewhere)
    told = {"MASTER_PORT": port}
    if not _is_torchrun(command):
        told["PET_MASTER_PORT"] = port  # of one that a script starts, unless it says another
    elif not elsewhere:
        told["PET_RDZV_ENDPOINT"] = address
    return words, {**variables, **told}


def _moved(name: str, value: str, port: str, elsewhere: bool) -> str:
    """An option's value; zero is any port already. `elsewhere`: a server knows where ranks meet."""
    if _option(name) in _PORTS and value.isdecimal() and int(value):
        return port
    if _option(name) == _ENDPOINT and value and not elsewhere:
        host, colon, number = value.rpartition(":")
        if not (colon and number.isdecimal()):
            return f"{value}:{port}"
        return f"{host}:{port}" if int(number) else value
    return value


def _values(command: Sequence[str], *options: str) -> list[str]:
    return [
        word.partition("=")[2] or after
        for word, after in itertools.pairwise([*command, ""])
        if _option(word) in options
    ]


def _option(word: str) -> str:
    return word.partition("=")[0].replace("_", "-")


def _is_torchrun(command: Sequence[str]) -> bool:
    named = bool(command) and Path(command[0]).name == "torchrun"
    return named or any(module in command for module in TORCHRUN)
