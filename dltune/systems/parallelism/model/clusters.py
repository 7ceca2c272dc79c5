"""The two clusters that FlexFlow was measured on (its Figure 6), in any number of nodes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

from dltune.base.errors import UsageError
from dltune.systems.parallelism.schemas.topology import (
    SCHEMA,
    Device,
    Kind,
    Link,
    Topology,
)

GPUS = 4  # of a node

# bytes a second, each direction: lanes x transfers a second x bits of data of those sent
_PCIE = 16 * 8e9 * 128 / 130 / 8
_EDR = 4 * 25.78125e9 * 64 / 66 / 8
_FDR = 4 * 14.0625e9 * 64 / 66 / 8
_NVLINK = 20e9
_ACROSS_BOARDS = 12e9

# seconds, of a link
_NVLINK_LATENCY = 5e-6
_PCIE_LATENCY = 2.5e-6
_INFINIBAND_LATENCY = 1e-6

_OVERHEAD = 5e-6
_ASSUMED = (
    "Assumptions: 5 us for the launch of a kernel; a share of the roofline with which Inception-v3 "
    "trains at {rate} images/s in batches of 64, as in TensorFlow's benchmarks of May 2017."
)
P100 = Kind(
    "P100",
    flops=10.6e12,
    bandwidth=732e9,
    overhead=_OVERHEAD,
    share=0.49,
    source="NVIDIA, Tesla P100 (SXM2) data sheet: 10.6 Tflop/s in 32 bits with boost, 732 GB/s. "
    + _ASSUMED.format(rate=142),
)
K80 = Kind(
    "K80",
    flops=8.74e12 / 2,
    bandwidth=480e9 / 2,
    overhead=_OVERHEAD,
    share=0.26,
    source="NVIDIA, Tesla K80 board specification BD-07317-001, one of its two GPUs: 8.74 Tflop/s "
    "in 32 bits for both with boost (875 MHz; 5.6 at the base clock of 560), 480 GB/s for both. "
    + _ASSUMED.format(rate=30.5),
)
_LATENCIES = (
    "Latencies are assumptions: 5 us for a copy over NVLink, 2.5 us for a PCIe link, 1 us for an "
    "InfiniBand link."
)


def p100(gpus: int = 16) -> Topology:
    """Nodes of four P100, 4 in the paper. Raises UsageError for another number of GPUs than makes
    whole nodes, or than a part of one."""
    devices, hosts = _nodes(gpus, "P100")
    links = []
    for host, own in hosts.items():
        links += [Link(pair, _NVLINK, _NVLINK_LATENCY) for pair in itertools.combinations(own, 2)]
        links += [Link((name, f"{host}/pcie"), _PCIE, _PCIE_LATENCY) for name in own]
        links.append(Link((f"{host}/pcie", "infiniband"), _EDR, _INFINIBAND_LATENCY))
    switches = (*(f"{host}/pcie" for host in hosts), "infiniband")
    return Topology(
        SCHEMA,
        f"{gpus} P100",
        (P100,),
        devices,
        tuple(links),
        switches,
        source="FlexFlow (Jia, Zaharia and Aiken, 2018), section 8.1. Within a node one NVLink "
        "for each pair, 20 GB/s each way (NVIDIA, Tesla P100 whitepaper; a GPU's fourth is left "
        "out). Between nodes EDR InfiniBand: the paper prints 100 GB/s, but EDR has 100 Gbit/s, "
        "12.5 GB/s, which is used; GPUs reach it over PCIe 3.0 with 16 lanes, 15.75 GB/s. "
        + _LATENCIES,
    )


def k80(gpus: int = 64) -> Topology:
    """Nodes of four K80, 16 in the paper: two boards of two GPUs. Raises as `p100`."""
    devices, hosts = _nodes(gpus, "K80")
    links, switches = [], []
    for host, own in hosts.items():
        shared = f"{host}/pcie"
        switches.append(shared)
        for number in range(0, len(own), 2):
            board = f"{host}/board{number // 2}"
            switches.append(board)
            pair = own[number : number + 2]
            links += [Link((name, board), _PCIE, _PCIE_LATENCY) for name in pair]
            links.append(Link((board, shared), _ACROSS_BOARDS, _PCIE_LATENCY))
        links.append(Link((shared, "infiniband"), _FDR, _INFINIBAND_LATENCY))
    return Topology(
        SCHEMA,
        f"{gpus} K80",
        (K80,),
        devices,
        tuple(links),
        (*switches, "infiniband"),
        source="FlexFlow (Jia, Zaharia and Aiken, 2018), section 8.1. Adjacent GPUs over a switch "
        "of PCIe 3.0 with 16 lanes, 15.75 GB/s each way; the others of a node over one that all "
        "share, 12 GB/s for each board, an assumption. Between nodes the paper prints 56 GB/s of "
        "EDR InfiniBand; 56 Gbit/s is FDR, of which 6.8 GB/s are data, which is used. "
        + _LATENCIES,
    )


# each takes a number of GPUs
CLUSTERS: Mapping[str, Callable[[int], Topology]] = {"p100": p100, "k80": k80}


def _nodes(gpus: int, kind: str) -> tuple[tuple[Device, ...], dict[str, list[str]]]:
    """The devices, and their names by host."""
    if gpus < 1 or (gpus > GPUS and gpus % GPUS):
        raise UsageError(
            f"a cluster of {gpus} GPUs is not possible: each node has {GPUS} GPUs",
            remedy=f"use 1 to {GPUS} GPUs, or a multiple of {GPUS}",
        )
    devices = tuple(Device(f"gpu{n}", kind, f"node{n // GPUS}") for n in range(gpus))
    hosts: dict[str, list[str]] = {}
    for device in devices:
        hosts.setdefault(device.host, []).append(device.name)
    return devices, hosts
