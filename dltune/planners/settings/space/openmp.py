"""The OpenMP runtime that PyTorch's ops run on."""

from __future__ import annotations

from dltune.planners.settings.setting import Means, Setting

OPENMP_WAIT = Setting(
    name="openmp_wait",
    what="threads that wait for the next op look for it all the time, or sleep at once; by itself "
    "the runtime looks for a while",
    kind="exact",
    source="the OpenMP specification, OMP_WAIT_POLICY; GNU libgomp's manual, GOMP_SPINCOUNT",
    ways=lambda _: {
        value: Means(environment={"OMP_WAIT_POLICY": value.upper()})
        for value in ("active", "passive")
    },
    joins=("threads",),
    framework="pytorch",
)
