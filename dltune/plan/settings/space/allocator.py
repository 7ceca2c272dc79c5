"""Where TensorFlow's memory comes from, and whether it is kept between steps.

Tensors are allocated and freed in every step. glibc maps large ones anew each time, and each first
touch of a page is a fault. TensorFlow sets M_TRIM_THRESHOLD in ops that call Python, which ends
glibc's own adaption (tensorflow/core/kernels/data/generator_dataset_op.cc).
"""

from __future__ import annotations

from dltune.base.errors import UsageError
from dltune.plan.settings.setting import Circumstances, Means, Setting
from dltune.system import memory

# bytes; larger than any tensor that comes and goes, and more than is ever free at a time. Of other
# arenas than the first one glibc gives back whatever is free in whole, and none holds 64 MiB
_KEEP = (
    "glibc.malloc.mmap_threshold=1073741824",
    "glibc.malloc.trim_threshold=4294967296",
    "glibc.malloc.arena_max=1",
)
_HUGE = "glibc.malloc.hugetlb=1"
_TUNABLES = {
    "glibc-keep-thp": (*_KEEP, _HUGE),
    "glibc-keep": _KEEP,
    "glibc-thp": (_HUGE,),
}
# glibc that knows the tunable (its NEWS)
_HUGE_SINCE = (2, 35)
# left to themselves these give memory back after a while, which costs more faults than glibc
_NO_DECAY = "dirty_decay_ms:-1,muzzy_decay_ms:-1"
# the library, and the variables that it reads: mimalloc's before and since 2.1
_PRELOADED: dict[str, tuple[str, dict[str, str]]] = {
    "tcmalloc": ("tcmalloc", {}),
    "jemalloc-thp": ("jemalloc", {"MALLOC_CONF": f"thp:always,metadata_thp:auto,{_NO_DECAY}"}),
    "jemalloc": ("jemalloc", {"MALLOC_CONF": _NO_DECAY}),
    "mimalloc": ("mimalloc", {"MIMALLOC_PAGE_RESET": "0", "MIMALLOC_PURGE_DELAY": "-1"}),
}
VALUES = (*_TUNABLES, *_PRELOADED)
# likeliest gain first; of each line the first that can be had is worth trying
_TRIED = (
    ("tcmalloc",),
    ("glibc-keep-thp", "glibc-keep"),
    ("jemalloc-thp", "jemalloc"),
    ("mimalloc",),
)


def _values(here: Circumstances) -> tuple[str, ...]:
    found = (next((v for v in line if _why_not(v, here) is None), None) for line in _TRIED)
    return tuple(value for value in found if value)


def _why_not(value: str, here: Circumstances) -> str | None:
    """Why a value does nothing here."""
    if value.endswith("-thp") and memory.huge_page_mode() not in ("madvise", "always"):
        return "this system provides no transparent huge pages"
    if value in _PRELOADED:
        name, _ = _PRELOADED[value]
        if memory.find_allocator(name, here.environment) is None:
            return f"{' or '.join(memory.SONAMES[name])} is not installed"
        return None
    version = memory.glibc()
    if version is None:
        return "the C library is not glibc"
    if _HUGE in _TUNABLES[value] and version < _HUGE_SINCE:
        return f"glibc {version[0]}.{version[1]} is too old for huge pages; 2.35 is needed"
    return None


def _means(value: str, here: Circumstances) -> Means:
    if value not in VALUES:
        raise UsageError(
            f"allocator={value}: unknown value", remedy=f"use one of {', '.join(VALUES)}"
        )
    if why := _why_not(value, here):
        package = memory.PACKAGES.get(_PRELOADED[value][0]) if value in _PRELOADED else None
        raise UsageError(
            f"allocator={value} cannot be used here: {why}",
            remedy=f"install {package}" if package else None,
        )
    if value in _TUNABLES:
        return Means(joined={"GLIBC_TUNABLES": _TUNABLES[value]})
    name, variables = _PRELOADED[value]
    library = memory.find_allocator(name, here.environment)
    assert library is not None  # by _why_not
    return Means(preload=(library,), environment=variables)


def _users(here: Circumstances) -> str | None:
    if library := memory.preloaded(here.environment):
        return f"{library} in LD_PRELOAD"
    named = [name for name in here.environment if name.startswith("MALLOC_")]
    return f"{named[0]}={here.environment[named[0]]}" if named else None


def _untried(here: Circumstances) -> dict[str, str]:
    found = {line[-1]: _why_not(line[-1], here) for line in _TRIED}
    return {value: why for value, why in found.items() if why is not None}


ALLOCATOR = Setting(
    name="allocator",
    order=70,
    what="Choose the memory allocator, whether it keeps freed memory, and whether it uses huge "
    "pages.",
    helps="Jobs with many page faults, which allocate and free large tensors in every step.",
    meanings={
        "glibc-keep-thp": "glibc keeps freed memory and uses transparent huge pages",
        "glibc-keep": "glibc keeps freed memory instead of returning it to the system",
        "glibc-thp": "glibc uses transparent huge pages",
        "tcmalloc": "tcmalloc, if installed",
        "jemalloc-thp": "jemalloc, if installed; keeps freed memory and uses huge pages",
        "jemalloc": "jemalloc, if installed; keeps freed memory",
        "mimalloc": "mimalloc, if installed; keeps freed memory",
    },
    kind="exact",
    source="glibc's manual (malloc tunables); TensorFlow's guide to performance on CPUs (tcmalloc, "
    "jemalloc)",
    offers=_values,
    reads=_means,
    joins=("onednn_primitives",),
    users=_users,
    untried=_untried,
)
