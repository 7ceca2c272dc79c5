"""The OpenMP runtime that PyTorch's ops run on."""

from __future__ import annotations

from dltune.planners.settings.setting import Means, Setting

OPENMP_WAIT = Setting(
    name="openmp_wait",
    what="threads that wait for the next op sleep at once; by itself the runtime looks for it for "
    "a while",
    kind="exact",
    source="the OpenMP specification, OMP_WAIT_POLICY; GNU libgomp's manual, GOMP_SPINCOUNT",
    # and not "active": a job that stands while others have their turn would take a core from them
    ways=lambda _: {"passive": Means(environment={"OMP_WAIT_POLICY": "PASSIVE"})},
    joins=("threads",),
    framework="pytorch",
)
