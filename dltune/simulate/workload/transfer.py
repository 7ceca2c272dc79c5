"""Carry a workload from the machine it was measured on to the one that is planned for."""

from __future__ import annotations

import dataclasses

from dltune.schemas.machine import Machine
from dltune.simulate.model import knl
from dltune.simulate.model.curve import Curve, all_cases
from dltune.simulate.model.scaling import fitted
from dltune.simulate.workload.workload import Workload


def transferred(workload: Workload, machine: Machine) -> Workload:
    """The workload on `machine`.

    Cores of the measured machine keep its op times. The paper's machine has its own model
    (docs/research/knl.md). On any other, a core is taken to be as fast as where the ops were
    measured, and each op's times follow the law of dltune.simulate.model.scaling, fitted to
    its measured ones; where the measured counts cover the machine they are used as they are.
    """
    measured = workload.machine
    if machine.name == measured.name and len(machine.cores) <= len(measured.cores):
        return dataclasses.replace(workload, machine=machine)
    if machine.name == knl.NAME:
        return _to_knl(workload, machine)
    count = len(machine.cores)
    cases = all_cases(machine)
    curves: list[Curve | None] = []
    extrapolated = 0
    for op, curve in zip(workload.ops, workload.curves, strict=True):
        samples = [(time.threads, time.min) for time in op.times if time.min > 0]
        covered = max((n for n, _ in samples), default=0)
        if curve is None or covered >= count or not samples:
            curves.append(curve)
            continue
        extrapolated += 1
        curves.append(fitted(samples).curve(cases).scaled(workload.scale))
    remark = (
        f"note: op times were measured on {measured.name}; the plan assumes that a core of "
        f"{machine.name} is as fast"
    )
    if extrapolated:
        remark += (
            f". {extrapolated} ops were not measured on {count} threads: their times are "
            "extrapolated by serial + parallel/n + spawn*n, fitted to the measured times"
        )
    return dataclasses.replace(
        workload,
        machine=machine,
        curves=tuple(curves),
        model=None,
        remarks=(*workload.remarks, remark),
    )


def _to_knl(workload: Workload, machine: Machine) -> Workload:
    """Apply the method of docs/research/knl.md: its laws, its controllable ops, OpenMP's spinning.

    What was found for the measured machine (executor's time, factor, gaps) says nothing there.
    """
    cases = all_cases(machine)
    curves = [
        None if curve is None else knl.curve(op.type, curve.serial / workload.scale, cases)
        for op, curve in zip(workload.ops, workload.curves, strict=True)
    ]
    held = {
        index: len(machine.cores)
        for index, op in enumerate(workload.ops)
        if curves[index] is not None and not knl.controlled(op.type)
    }
    remark = (
        f"note: op times on {machine.name} are modelled from the paper's tables and this profile's "
        f"times on one thread. {len(held)} of {len(workload.ops)} ops keep {len(machine.cores)} "
        "threads, because the paper's runtime could not control them"
    )
    return dataclasses.replace(
        workload,
        machine=machine,
        curves=tuple(curves),
        model=None,
        held=held,
        between=0.0,
        overhead=0.0,
        scale=1.0,
        spinning=True,
        oversubscription=knl.OVERSUBSCRIPTION,
        remarks=(*workload.remarks, remark),
    )
