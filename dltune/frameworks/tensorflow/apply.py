"""Orders obeyed by TensorFlow in this process, without a dltune outside it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

from dltune.base.errors import UsageError
from dltune.frameworks.bootstrap import _dltune_plugin
from dltune.frameworks.tensorflow.inject import _dltune_tensorflow
from dltune.job.protocol import encoded

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
            "TensorFlow has already created its devices, so the plan would have no effect",
            remedy="call dltune.apply before TensorFlow's first op",
        )
    try:
        flags, salt = _dltune_tensorflow.arguments(Path(tf.__file__).parent)
        built = _dltune_plugin.library("plugin", _dltune_tensorflow.PLUGIN, flags, salt)
        library = ctypes.CDLL(str(built))
    except Exception as error:
        raise UsageError(
            f"dltune's plugin does not work with this TensorFlow: {error}",
            remedy="run `dltune doctor` in this Python environment",
        ) from None
    library.dltune_obey.restype = ctypes.c_char_p
    for line in lines:
        complaint = library.dltune_obey(encoded([line]).rstrip(b"\n"))
        if complaint:
            raise UsageError(
                f"dltune's plugin refused the plan: {complaint.decode('latin-1')}",
                remedy="create the plan again with this version of dltune",
            )
    _plugin = library
