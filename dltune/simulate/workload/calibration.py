"""Tie simulated times to the one run whose time is known: the job under its own settings.

Ops were measured one by one; in the job the executor spends time on each, and caches are shared.
The first is a fixed time per op, found so that the simulated span equals the measured one. What
that cannot explain (it has a limit) is a factor on all op times.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dltune.schemas.profile import Profile
from dltune.simulate.model.prediction import Model
from dltune.simulate.workload.workload import Workload, measured_span, workload

# The most that TensorFlow's executor may be made responsible for, in seconds per op: reading the
# attribute, hashing and two clock reads are 0.5 us, and a hand-over between threads about 6 us.
MAX_OVERHEAD = 10e-6
# Where Python calls each op, so long may it and the framework's dispatch take to come to the next.
MAX_EAGER_OVERHEAD = 1e-3
# The simulated span may differ by this part.
TOLERANCE = 1e-4
ROUNDS = 30
# Ops that take more than this times as long in the job as one by one, or less than the inverse,
# were measured at moments that do not compare. Our choice: beyond what co-running ops on the
# paper's machine lose to each other (25 %, Table III).
DOUBTFUL = 1.3


@dataclass(frozen=True)
class Calibration:
    """`overhead` in seconds per op, `scale` on all op times, `span` the measured one in seconds."""

    overhead: float
    scale: float
    span: float

    @property
    def doubtful(self) -> bool:
        """The job's own run and its ops' times do not fit each other."""
        return not 1 / DOUBTFUL <= self.scale <= DOUBTFUL


def calibrated(profile: Profile, model: Model | None = None) -> tuple[Workload, Calibration]:
    """Return the profile's workload, tied to its own measured span. Raises UsageError as
    `workload`. A job with more threads for an op than cores is not used: its threads wait for one
    another, which the simulator does not model."""
    made = workload(profile, model)
    if is_oversubscribed(profile):
        return made, Calibration(0.0, 1.0, 0.0)
    eager = profile.framework.capabilities.is_eager
    found = calibration(made, measured_span(profile), MAX_EAGER_OVERHEAD if eager else MAX_OVERHEAD)
    return made.calibrated(found.overhead, found.scale), found


def is_oversubscribed(profile: Profile) -> bool:
    """Return True if an op of the job had more threads than the machine has cores."""
    return profile.settings.intra > len(profile.machine.cores)


def calibration(made: Workload, span: float, most: float = MAX_OVERHEAD) -> Calibration:
    """What makes the workload under its own settings take `span` seconds from first op to last; of
    overhead for an op no more than `most`."""

    def simulated(overhead: float, scale: float) -> float:
        there = made.calibrated(overhead, scale)
        return there.uniform(made.own.intra, made.own.inter).seconds - there.between

    if span <= 0:
        return Calibration(0.0, 1.0, span)
    low = simulated(0.0, 1.0)
    high = simulated(most, 1.0)
    if low <= span <= high:
        return Calibration(_solve(lambda x: simulated(x, 1.0), 0.0, most, span), 1.0, span)
    overhead = 0.0 if low > span else most
    start = low if low > span else high
    if start <= 0:
        return Calibration(0.0, 1.0, span)
    guess = span / start
    scale = _solve(lambda x: simulated(overhead, x), min(1.0, guess / 2), max(1.0, guess * 2), span)
    return Calibration(overhead, scale, span)


def _solve(f: Callable[[float], float], low: float, high: float, wanted: float) -> float:
    """Where the rising f is `wanted`, by false position that falls back to halving."""
    f_low, f_high = f(low), f(high)
    middle = low
    for round_ in range(ROUNDS):
        if f_high <= f_low:
            return low
        part = (wanted - f_low) / (f_high - f_low) if round_ % 3 else 0.5
        middle = low + (high - low) * min(1.0, max(0.0, part))
        found = f(middle)
        if abs(found - wanted) <= TOLERANCE * wanted:
            break
        if found < wanted:
            low, f_low = middle, found
        else:
            high, f_high = middle, found
    return middle
