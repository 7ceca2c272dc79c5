"""Orders obeyed by TensorFlow in this process, without a dltune outside it."""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from dltune.errors import UsageError
from dltune.job.launch import INJECTED
from dltune.job.orders import encoded

_plugin: ctypes.CDLL | None = None  # keeps the library loaded


def obey(lines: Sequence[str]) -> None:
    """Imports TensorFlow and loads the plugin under these orders.

    Raises UsageError when TensorFlow has made its devices already, or the plugin does not work.
    """
    global _plugin
    import tensorflow as tf
    from tensorflow.python.eager import context

    if context.context()._context_handle is not None:
        raise UsageError(
            "TensorFlow has made its devices already, so the plan would do nothing",
            remedy="call dltune.apply before TensorFlow's first op",
        )
    try:
        library = ctypes.CDLL(str(_builder().library(Path(tf.__file__).parent)))
    except Exception as error:
        raise UsageError(f"the plugin does not work with TensorFlow here: {error}") from None
    library.dltune_obey.restype = ctypes.c_char_p
    for line in lines:
        complaint = library.dltune_obey(encoded([line]).rstrip(b"\n"))
        if complaint:
            raise UsageError(f"the plugin refused the plan: {complaint.decode('latin-1')}")
    _plugin = library


def _builder() -> ModuleType:
    """The injected module that knows which library fits; it is no part of a package there."""
    name = "_dltune_plugin"
    spec = importlib.util.spec_from_file_location(name, INJECTED / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(name, module)
    spec.loader.exec_module(module)
    return module
