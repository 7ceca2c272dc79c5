"""Python files that a job imports to apply the plan: for Keras on JAX, plain JAX, or PyTorch."""

from __future__ import annotations

import ast
import pprint
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dltune.base.errors import UsageError
from dltune.frameworks.pytorch import INJECTED as TORCH
from dltune.systems.parallelism import INJECTED
from dltune.systems.parallelism.schemas.strategy import Divided, Parallelism

_REMEDY = "plan with --for keras, --for jax or --for torch"


def expressed(section: Parallelism) -> dict[str, Any]:
    """Return the input of `inject/_dltune_layouts.py`.

    Raises UsageError where operators are on blocks of devices, or share weights that they divide
    differently.

    JAX, Keras and PyTorch can take a section in which every operator is on all devices of one mesh.
    """
    mesh = section.mesh or (len(section.devices),)
    if not section.mesh and len(section.devices) > 1:
        raise UsageError(
            "the plan places operators on different blocks of devices, but Keras, JAX and PyTorch "
            "can only place every operator on one mesh of all devices",
            remedy=_REMEDY,
        )
    owners: dict[str, Divided] = {}
    for one in section.operators:
        first = owners.setdefault(one.weights, one) if one.weights else one
        if _divided(first) != _divided(one):
            raise UsageError(
                f"the operators {first.name!r} and {one.name!r} share the weights "
                f"{one.weights!r} but divide them differently, which is not possible on a mesh",
                remedy=_REMEDY,
            )
    operators = [
        {
            "name": one.name,
            "type": one.type,
            "rank": len(one.dimensions),
            "axes": list(one.axes) or [None] * len(mesh),
            "parameter": one.parameter,
            "weights": one.weights,
        }
        for one in section.operators
    ]
    return {"mesh": list(mesh), "operators": operators}


def _divided(one: Divided) -> tuple[int, ...]:
    """The axes of the mesh over which its weights are divided."""
    return tuple(n for n, at in enumerate(one.axes) if at is not None and at == one.parameter)


_LAYOUTS = INJECTED / "_dltune_layouts.py"

_HEAD = '''\
"""{network!r} divided over {devices} devices, a mesh of shape {shape}. Written by dltune for
{what}.

{text}
"""
'''

_START = """\
Start one process for each device. Each process must run these lines before it uses JAX otherwise;
`dltune run --plan PLAN -- python train.py` does both:

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(coordinator_address, number_of_processes, this_process)
"""

_KERAS = (
    _START
    + """
Then, before the job builds a model:

    import keras, dltune_plan
    keras.utils.set_random_seed(0)  # the same seed in all processes
    dltune_plan.distribute()

Every process passes whole batches to `fit`, in the same order, and keeps its part of each. A weight
that belongs to no operator of the plan is an error. Call `model.save` in all processes: one of them
writes the whole model."""
)

_JAX = (
    _START
    + """
Weights are a tree of dictionaries, by layer and then by name ("kernel", "bias", ...):

    import dltune_plan as plan
    params = plan.shard(params)                  # the same whole weights in every process
    x = plan.batch(x[plan.rows(n)], n)           # this process's part of a batch of n samples
    h = plan.constrain("conv1", conv1(params, x))  # in the model, under jax.jit
    h = plan.constrain("dense", dense(params, plan.read("dense", h)))

To save, gather in all processes and write in one:

    whole = jax.experimental.multihost_utils.process_allgather(params, tiled=True)
    if jax.process_index() == 0: ...

and pass the weights to `shard` after loading them."""
)

_TORCH = """\
Start one process for each device, for example with `torchrun --nproc-per-node`. Each process must
run these lines before it calls a model (`dltune run --plan PLAN -- python train.py` needs neither
these lines nor this file):

    import torch, dltune_plan
    torch.distributed.init_process_group("gloo")
    torch.manual_seed(0)  # the same seed in all processes
    dltune_plan.distribute()

Every process passes the same whole batches to the model and gets whole results. `state_dict`
returns whole weights; one process is enough to write them with `torch.save`. A weight that belongs
to no operator of the plan is an error."""

_KERAS_CODE = '''

def distribute() -> None:
    """Divide the Keras models that are built from now on as planned. Exit with code 2 if the job's
    devices differ from the plan's."""
    import keras

    if type(keras.distribution.distribution()).__name__ == "Planned":
        return  # dltune run has applied the plan
    layouts = Layouts(DLTUNE_PLAN)
    if keras.backend.backend() != "jax":
        _refuse(f"Keras uses the backend {keras.backend.backend()!r}", "set KERAS_BACKEND=jax")
    _require_devices(layouts.mesh)
    Distribution(layouts, _refuse).begin()
'''

_JAX_CODE = '''
_LAYOUTS = Layouts(DLTUNE_PLAN)


def mesh() -> Any:
    """Return the plan's devices. Exit with code 2 if the job's devices differ."""
    import jax
    import numpy as np

    _require_devices(_LAYOUTS.mesh)
    devices = sorted(jax.devices(), key=lambda one: (one.process_index, one.id))
    return jax.sharding.Mesh(np.array(devices).reshape(_LAYOUTS.mesh), _LAYOUTS.axes)


def sharding(path: str, shape: Sequence[int]) -> Any:
    """Return the NamedSharding of the weight at `path`, such as "dense/kernel". Exit with code 2 if
    no operator of the plan has this weight, or more than one has."""
    try:
        return _named(_LAYOUTS.weight(path, shape))
    except ValueError as error:
        _refuse(str(error), "plan again for the current network")


def shard(params: Any) -> Any:
    """Divide each weight of a tree as planned; every process passes the same whole weights."""
    import jax
    import numpy as np

    def put(keys: Any, weight: Any) -> Any:
        path = "/".join(str(getattr(key, "key", getattr(key, "idx", key))) for key in keys)
        whole = np.asarray(weight)
        return jax.make_array_from_callback(
            whole.shape, sharding(path, whole.shape), lambda part: whole[part]
        )

    return jax.tree_util.tree_map_with_path(put, params)


def rows(samples: int) -> slice:
    """Return the rows of a batch of `samples` samples that this process passes to `batch`."""
    import jax

    places = _named(_LAYOUTS.batch((samples,))).devices_indices_map((samples,))
    here: slice = places[jax.local_devices()[0]][0]
    return here


def batch(local: Any, samples: int) -> Any:
    """Return an array of a batch of `samples` samples from the rows of each process (`rows`)."""
    import jax
    import numpy as np

    local = np.asarray(local)
    whole = (samples, *local.shape[1:])
    return jax.make_array_from_process_local_data(_named(_LAYOUTS.batch(whole)), local, whole)


def constrain(name: str, array: Any) -> Any:
    """Divide the output of the operator `name` as planned."""
    import jax

    try:
        return jax.lax.with_sharding_constraint(array, _named(_LAYOUTS.output(name, array.shape)))
    except (KeyError, ValueError) as error:
        _refuse(f"constrain({name!r}): {error}", "plan again for the current network")


def read(name: str, array: Any) -> Any:
    """Divide the input of the operator `name` as it needs it. Without this, the partitioner can
    make the devices sum gradients that each of them can compute."""
    import jax

    try:
        return jax.lax.with_sharding_constraint(array, _named(_LAYOUTS.input(name, array.shape)))
    except KeyError:
        _refuse(
            f"read({name!r}): the plan has no such operator", "plan again for the current network"
        )


def _named(entries: tuple[Entry, ...]) -> Any:
    from jax.sharding import NamedSharding, PartitionSpec

    return NamedSharding(mesh(), PartitionSpec(*entries))
'''

_TORCH_CODE = '''

def distribute() -> None:
    """Divide the PyTorch models that are called from now on as planned. Exit with code 2 if the
    number of ranks differs from the plan's number of devices."""
    import torch

    if getattr(torch.nn.Module, "_dltune_plan", None) == DLTUNE_PLAN:
        return  # dltune run has applied the plan
    layouts = Layouts(DLTUNE_PLAN, nested=True)
    joined = torch.distributed.is_initialized()
    ranks = torch.distributed.get_world_size() if joined else 1
    if ranks != math.prod(layouts.mesh):
        _refuse(
            f"the plan requires {math.prod(layouts.mesh)} processes, one per device; the job has "
            f"{ranks}",
            "start the job with torchrun --nproc-per-node, or with dltune run --plan",
        )
    Distribution(layouts, _refuse).begin(torch)
'''

_JAX_REFUSING = """

def _require_devices(mesh: tuple[int, ...]) -> None:
    import jax

    if jax.device_count() != math.prod(mesh) or jax.local_device_count() != 1:
        _refuse(
            f"the plan requires {math.prod(mesh)} devices, one per process; the job has "
            f"{jax.device_count()}, of which {jax.local_device_count()} in this process",
            "start one process per device of the plan, as dltune run --plan does",
        )

"""

_REFUSING = """

def _refuse(fault: str, remedy: str) -> NoReturn:
    print(f"{fault}\\n        {remedy}", file=sys.stderr, flush=True)
    os._exit(2)
"""


def keras_file(section: Parallelism) -> str:
    """To be saved as dltune_plan.py. Raises UsageError where no mesh can express the section."""
    sources = (_LAYOUTS, INJECTED / "_dltune_distribution.py")
    return _file(section, "Keras on JAX", _KERAS, sources, _JAX_REFUSING + _KERAS_CODE)


def jax_file(section: Parallelism) -> str:
    """To be saved as dltune_plan.py. Raises UsageError where no mesh can express the section."""
    return _file(section, "JAX", _JAX, (_LAYOUTS,), _JAX_REFUSING + _JAX_CODE)


def torch_file(section: Parallelism) -> str:
    """To be saved as dltune_plan.py. Raises UsageError where no mesh can express the section."""
    own = (INJECTED / f"_dltune_torch_{part}.py" for part in ("layers", "random", "distribution"))
    sources = (_LAYOUTS, TORCH / "_dltune_torch_kinds.py", *own)
    return _file(section, "PyTorch", _TORCH, sources, _TORCH_CODE)


def _file(section: Parallelism, what: str, text: str, sources: Sequence[Path], code: str) -> str:
    plan = expressed(section)
    head = _HEAD.format(
        network=section.network,
        devices=len(section.devices),
        shape=" x ".join(map(str, plan["mesh"])),
        what=what,
        text=text,
    )
    imports = {"import math", "import os", "import sys"}
    names = {"typing": {"Any", "NoReturn"}}
    bodies = []
    for source in sources:
        body = _taken_apart(source.read_text(), imports, names)
        bodies.append(body)
    imports |= {f"from {module} import {', '.join(sorted(names[module]))}" for module in names}
    plain = sorted(line for line in imports if line.startswith("import "))
    named = sorted(line for line in imports if line.startswith("from "))
    lines = ["", "from __future__ import annotations", "", *plain, *named, ""]
    lines += ["# the plan; dltune run recognises this file by it"]
    lines += [f"DLTUNE_PLAN = {pprint.pformat(plan, width=88, sort_dicts=False)}", ""]
    return head + "\n".join([*lines, *bodies]) + _REFUSING + code


def _taken_apart(source: str, imports: set[str], names: dict[str, set[str]]) -> str:
    """Return the text after a file's imports; add these to `imports` and `names`, except those of
    dltune's files in the same folder."""
    last = 0
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import):
            imports.add(ast.unparse(node))
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if module != "__future__" and not module.startswith("_dltune"):
                names.setdefault(module, set()).update(alias.name for alias in node.names)
        else:
            continue
        last = node.end_lineno or 0
    return "\n".join(source.splitlines()[last:])
