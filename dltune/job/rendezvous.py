"""Where the ranks of a job meet: at a port that no other job has, so that several run at once."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from dltune.job.ranks import free_address
from dltune.machine.ranks import is_rank

# torchrun's option, accelerate's, and those of many a script
_ACCELERATES = "--main_process_port"
_PORTS = ("--master-port", "--main-process-port")
_ENDPOINT, _BACKEND = "--rdzv-endpoint", "PET_RDZV_BACKEND"
_NODES = ("--nnodes", "--num-machines")
_ONE_NODE = ("1", "1:1")
# as in `env MASTER_PORT=29500 python train.py`
_VARIABLE = re.compile(r"\bMASTER_PORT=[1-9]\d*")


def with_own_port(
    command: Sequence[str], variables: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """The command with a free port in place of the one that it names, and the variables with those
    that name the port to launchers and scripts that take it from them. `variables` stand beside
    this process's own. Ranks on several nodes, and a rank itself, meet where they were told."""
    environment = {**os.environ, **variables}
    if is_rank(environment) or _spans_nodes(command):
        return list(command), dict(variables)
    address = free_address()
    port = address.rpartition(":")[2]
    elsewhere = "etcd" in " ".join((environment.get(_BACKEND, ""), *command))
    words = [_VARIABLE.sub(f"MASTER_PORT={port}", word) for word in command]
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        if equals:
            words[place] = f"{name}={_moved(name, value, port, elsewhere)}"
        elif place + 1 < len(words):
            words[place + 1] = _moved(name, words[place + 1], port, elsewhere)
    if _launches_by_accelerate(words) and not any(_option(word) == _PORTS[1] for word in words):
        words[2:2] = [_ACCELERATES, port]
    told = {"MASTER_PORT": port}
    if not elsewhere:
        told["PET_RDZV_ENDPOINT"] = address  # torchrun's
    return words, {**variables, **told}


def _moved(name: str, value: str, port: str, elsewhere: bool) -> str:
    """An option's value; zero is any port already. `elsewhere`: a server knows where ranks meet."""
    if _option(name) in _PORTS and value.isdecimal() and int(value):
        return port
    if _option(name) == _ENDPOINT and value and not elsewhere:
        host, _, number = value.partition(":")
        return value if number == "0" else f"{host}:{port}"
    return value


def _option(word: str) -> str:
    return word.partition("=")[0].replace("_", "-")


def _launches_by_accelerate(command: Sequence[str]) -> bool:
    return [Path(word).name for word in command[:2]] == ["accelerate", "launch"]


def _spans_nodes(command: Sequence[str]) -> bool:
    return any(
        _option(word) in _NODES and (word.partition("=")[2] or after) not in _ONE_NODE
        for word, after in zip(command, [*command[1:], ""], strict=True)
    )
