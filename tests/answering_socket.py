"""A socket that takes the place of dltune for an interpreter of a job."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from dltune import extensions


@contextlib.contextmanager
def listening(folder: Path, answers: list[dict[str, Any]]) -> Iterator[tuple[str, list[dict]]]:
    """Listen in `folder`, beside the file of hooks; yield the socket's path and the messages so
    far. Each message gets the first of `answers`."""
    path: str = str(folder / "socket")
    heard: list[dict] = []
    (folder / "hooks").write_bytes(
        msgspec.json.encode([hook._asdict() for hook in extensions.hooks()])
    )
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()

    def serve() -> None:
        while True:
            connection, _ = listener.accept()
            with connection:
                line = connection.makefile("rb").readline()
                if not line:
                    return
                heard.append(json.loads(line))
                connection.sendall(json.dumps(answers[0]).encode() + b"\n")

    thread = threading.Thread(target=serve)
    thread.start()
    yield path, heard
    with socket.socket(socket.AF_UNIX) as last:
        last.connect(path)
    thread.join()
    listener.close()
