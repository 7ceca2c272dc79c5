"""`dltune.apply`: a plan enforced from inside a script, without `dltune run` around it."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

from dltune.documents import plan as documents
from dltune.errors import UsageError
from dltune.job.launch import INJECTED
from dltune.job.orders import encoded
from dltune.machine import topology
from dltune.machine.ranks import local_rank, share
from dltune.planners.threads.fitted import fit, require_machine

_plugin: ctypes.CDLL | None = None  # keeps the library loaded


def apply_here(path: Path) -> None:
    """Enforce the plan at `path` in this process; imports TensorFlow.

    A rank of a launcher gets its part of the node's cores. Raises UsageError when the plan does
    not fit this machine, when TensorFlow has made its devices already, or when another plan is
    enforced in this process.
    """
    global _plugin
    plan = documents.load(path)
    if plan.allreduce is not None:
        raise UsageError(
            "the plan has a section on Horovod, which works from the job's start on",
            remedy="start the job with dltune run",
        )
    if plan.settings is not None and plan.settings.chosen:
        names = ", ".join(choice.setting for choice in plan.settings.chosen)
        raise UsageError(
            f"the plan has settings ({names}) that are set at the job's start",
            remedy="start the job with dltune run",
        )
    machine = topology.local()
    require_machine(plan, machine)
    if _plugin is not None or os.environ.get("DLTUNE_SOCKET"):
        raise UsageError(
            "a plan is enforced in this process already", remedy="apply one plan, once"
        )
    rank = local_rank(os.environ)
    if rank is not None and rank.size > 1:
        machine = share(machine, rank)
        os.sched_setaffinity(0, [cpu for core in machine.cores for cpu in core.cpus])
    import tensorflow as tf
    from tensorflow.python.eager import context

    if context.context()._context_handle is not None:
        raise UsageError(
            "TensorFlow has made its devices already, so the plan would do nothing",
            remedy="call dltune.apply before TensorFlow's first op",
        )
    fitted = fit(plan, machine)
    try:
        library = ctypes.CDLL(str(_builder().library(Path(tf.__file__).parent)))
    except Exception as error:
        raise UsageError(f"the plugin does not work with TensorFlow here: {error}") from None
    library.dltune_obey.restype = ctypes.c_char_p
    orders = fitted.orders(1, plan.signatures)
    for line in (*fitted.first_lines(), *orders.lines()):
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
