"""A network, devices, measured times, and a plan that divides the network over the devices."""

from __future__ import annotations

import divided
import msgspec
import synthetic

from dltune.plan.plan import new_plan

TYPES = ()
MAIN = {
    "dltune.plan:parallelism": "sections.parallelism.operators",
    "dltune.operators": "operators",
    "dltune.topology": "devices",
    "dltune.operator-times": "parts",
}
PAGE = ("dltune.plan:blocks", "dltune.operators", "dltune.topology", "dltune.operator-times")


def documents() -> dict[str, msgspec.Struct]:
    machine = synthetic.machine(2)
    mesh = divided.section(consumer="jax", mesh=(2, 2))
    return {
        "dltune.plan:parallelism": new_plan(machine, sections={"parallelism": mesh}),
        "dltune.plan:blocks": new_plan(machine, sections={"parallelism": divided.section()}),
        "dltune.operators": divided.network(),
        "dltune.topology": divided.cluster(),
        "dltune.operator-times": divided.times(),
    }
