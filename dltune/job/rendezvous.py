"""Where the ranks of a job meet: at a port that no other job has, so that several run at once."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence

# options of torchrun's, of accelerate's, and of many a script
_PORTS = ("--master-port", "--main-process-port")
_ENDPOINT, _NODES = "--rdzv-endpoint", "--nnodes"
_HERE = ("localhost", "127.0.0.1")
_ONE_NODE = ("1", "1:1")
# what torchrun takes for its option, and what it and others tell their ranks
_TORCHRUNS, _RANKS = "PET_MASTER_PORT", "MASTER_PORT"


def apart(
    command: Sequence[str], environment: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """The command with a free port in place of the one that it names, and the variables that name
    that port where it names none. Ranks on several nodes, and one that its launcher has started,
    meet where they were told."""
    if _spans_nodes(command) or environment.get("WORLD_SIZE", "1") != "1":
        return list(command), {}
    port = _free_port()
    words = list(command)
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        if equals:
            words[place] = f"{name}={_moved(name, value, port)}"
        elif place + 1 < len(words):
            words[place + 1] = _moved(name, words[place + 1], port)
    variables = {_TORCHRUNS: str(port)}
    if _RANKS in environment:
        variables[_RANKS] = str(port)
    return words, variables


def _moved(option: str, value: str, port: int) -> str:
    """The option's value; zero is any port already."""
    option = option.replace("_", "-")
    host, colon, number = value.rpartition(":")
    if option in _PORTS and value.isdecimal() and int(value):
        return str(port)
    if option == _ENDPOINT and host in _HERE and number.isdecimal() and int(number):
        return f"{host}{colon}{port}"
    return value


def _spans_nodes(command: Sequence[str]) -> bool:
    return any(
        word.startswith(_NODES) and (word.partition("=")[2] or after) not in _ONE_NODE
        for word, after in zip(command, [*command[1:], ""], strict=True)
    )


def _free_port() -> int:
    with socket.socket() as free:
        free.bind((_HERE[1], 0))
        return int(free.getsockname()[1])
