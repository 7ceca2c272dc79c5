"""How long finding the tensor order takes, beside Table 6.1 of the thesis.

    python scripts/research/table_6_1.py PROFILE ...

Each profile of `dltune profile` gives the graph of its main step. Where the job does not use
Horovod, the tensors are those that lead from the gradients to the rest of the graph.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

from dltune.schemas import profile as document
from dltune.schemas.profile import Step
from dltune.simulate.step_graph import graph
from dltune.systems.ranks.allreduce.measurements import SINGLE
from dltune.systems.ranks.allreduce.order import traverse

REPEATS = 5
# Table 6.1: nodes, edges, milliseconds
THESIS = {
    "ResNet18": (1714, 2565, 32),
    "ResNet34": (2866, 4325, 86),
    "ResNet50": (3988, 6042, 159),
    "ResNet101": (7558, 11499, 594),
    "ResNet152": (11128, 16956, 1274),
    "AlexNet": (655, 893, 6),
    "GoogLeNet": (3499, 4970, 182),
    "Inception-v3": (6146, 9211, 382),
    "VGG16": (1091, 1479, 17),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("profiles", type=Path, nargs="+", metavar="PROFILE")
    arguments = parser.parse_args()
    print("| graph | nodes | edges | tensors | ms | us for a node or edge |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, (nodes, edges, ms) in THESIS.items():
        print(f"| thesis, {name} | {nodes} | {edges} | | {ms} | {1e3 * ms / (nodes + edges):.1f} |")
    for path in arguments.profiles:
        step = max(document.load(path).steps, key=lambda step: step.share)
        print(row(path.name, step))


def row(name: str, step: Step) -> str:
    parents = graph(step).predecessors.lists
    found = tensors(step)
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        consumed = {node for before in parents for node in before}
        fetches = [node for node in range(len(parents)) if node not in consumed]
        traverse(parents, fetches, {node: place for place, node in enumerate(found)})
        times.append(time.perf_counter() - began)
    seconds, edges = statistics.median(times), sum(map(len, parents))
    each = 1e6 * seconds / (len(parents) + edges)
    return (
        f"| {name} | {len(parents)} | {edges} | {len(found)} | {1e3 * seconds:.1f} | {each:.2f} |"
    )


def tensors(step: Step) -> list[int]:
    reduced = [k for k, node in enumerate(step.nodes) if node.type == SINGLE]
    if reduced:
        return reduced
    return sorted(
        {
            parent
            for node in step.nodes
            if not node.name.startswith("gradient_tape/")
            for parent in node.inputs
            if step.nodes[parent].name.startswith("gradient_tape/")
        }
    )


if __name__ == "__main__":
    main()
