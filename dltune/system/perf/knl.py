"""The core events of Intel's Knights Landing (Xeon Phi 7200; 7205 to 7295, Knights Mill, alike).

Source: Intel's public event list, github.com/intel/perfmon, KNL/events/knightslanding_core.json,
version 16: every event of a core but those of OFFCORE_RESPONSE (which count a tile's requests by
where they are answered) and the precise duplicates, which count what their plain namesakes count.
The paper (section III-B) used 26 events without naming them.
"""

from __future__ import annotations

from dltune.system.perf.events import Event
from dltune.system.perf.syscall import TYPE_RAW

# CPUID family 6, models of Knights Landing and Knights Mill
MODELS = (0x57, 0x85)
EDGE = 1 << 18

_BRANCHES = {
    "ALL_BRANCHES": 0x00,
    "JCC": 0x7E,
    "FAR_BRANCH": 0xBF,
    "NON_RETURN_IND": 0xEB,
    "RETURN": 0xF7,
    "CALL": 0xF9,
    "IND_CALL": 0xFB,
    "REL_CALL": 0xFD,
    "TAKEN_JCC": 0xFE,
}
# name: event select, unit masks by the second part of the name
_TABLE: dict[str, tuple[int, dict[str, int]]] = {
    "RECYCLEQ": (
        0x03,
        {
            "LD_BLOCK_ST_FORWARD": 0x01,
            "LD_BLOCK_STD_NOTREADY": 0x02,
            "ST_SPLITS": 0x04,
            "LD_SPLITS": 0x08,
            "LOCK": 0x10,
            "STA_FULL": 0x20,
            "ANY_LD": 0x40,
            "ANY_ST": 0x80,
        },
    ),
    "MEM_UOPS_RETIRED": (
        0x04,
        {
            "L1_MISS_LOADS": 0x01,
            "L2_HIT_LOADS": 0x02,
            "L2_MISS_LOADS": 0x04,
            "DTLB_MISS_LOADS": 0x08,
            "UTLB_MISS_LOADS": 0x10,
            "HITM": 0x20,
            "ALL_LOADS": 0x40,
            "ALL_STORES": 0x80,
        },
    ),
    "PAGE_WALKS": (0x05, {"D_SIDE_CYCLES": 0x01, "I_SIDE_CYCLES": 0x02, "CYCLES": 0x03}),
    "L2_REQUESTS": (0x2E, {"MISS": 0x41, "REFERENCE": 0x4F}),
    "L2_REQUESTS_REJECT": (0x30, {"ALL": 0x00}),
    "CORE_REJECT_L2Q": (0x31, {"ALL": 0x00}),
    "CPU_CLK_UNHALTED": (0x3C, {"THREAD": 0x00, "REF": 0x01}),
    "L2_PREFETCHER": (0x3E, {"ALLOC_XQ": 0x04}),
    "ICACHE": (0x80, {"HIT": 0x01, "MISSES": 0x02, "ACCESSES": 0x03}),
    "FETCH_STALL": (0x86, {"ICACHE_FILL_PENDING_CYCLES": 0x04}),
    "INST_RETIRED": (0xC0, {"ANY": 0x00}),
    "UOPS_RETIRED": (0xC2, {"MS": 0x01, "ALL": 0x10, "SCALAR_SIMD": 0x20, "PACKED_SIMD": 0x40}),
    "MACHINE_CLEARS": (
        0xC3,
        {"SMC": 0x01, "MEMORY_ORDERING": 0x02, "FP_ASSIST": 0x04, "ALL": 0x08},
    ),
    "BR_INST_RETIRED": (0xC4, _BRANCHES),
    "BR_MISP_RETIRED": (0xC5, _BRANCHES),
    "NO_ALLOC_CYCLES": (
        0xCA,
        {"ROB_FULL": 0x01, "MISPREDICTS": 0x04, "RAT_STALL": 0x20, "ALL": 0x7F}
        | {"NOT_DELIVERED": 0x90},
    ),
    "RS_FULL_STALL": (0xCB, {"MEC": 0x01, "ALL": 0x1F}),
    "CYCLES_DIV_BUSY": (0xCD, {"ALL": 0x01}),
    "BACLEARS": (0xE6, {"ALL": 0x01, "RETURN": 0x08, "COND": 0x10}),
    "MS_DECODED": (0xE7, {"MS_ENTRY": 0x01}),
}
# the same selects and masks as PAGE_WALKS' cycles, counted where they begin
_EDGES = {"D_SIDE_WALKS": 0x01, "I_SIDE_WALKS": 0x02, "WALKS": 0x03}

EVENTS: tuple[Event, ...] = (
    *(
        Event(f"{group}.{name}", TYPE_RAW, select | mask << 8)
        for group, (select, masks) in _TABLE.items()
        for name, mask in masks.items()
    ),
    *(
        Event(f"PAGE_WALKS.{name}", TYPE_RAW, 0x05 | mask << 8 | EDGE)
        for name, mask in _EDGES.items()
    ),
    # of the fixed counter 2, which the kernel asks for by this code of its own
    Event("CPU_CLK_UNHALTED.REF_TSC", TYPE_RAW, 0x0300),
)
