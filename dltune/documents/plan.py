"""The plan document: decisions, and the predictions they rest on.

Each planner owns one section; a plan may hold several. A person can read, edit and commit it.
"""

from __future__ import annotations

import msgspec

from dltune.documents.profile import Placement

SCHEMA = "dltune.plan/1"


class Candidate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A way to run an op, with its predicted time in seconds."""

    threads: int
    placement: Placement
    seconds: float


class OpPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How one op key runs.

    `threads`: into how many parts the work is divided. `cores`: the core indices it may run on;
    None leaves them to the scheduler, which takes as many as `threads` in the given `placement`.
    `serial`: predicted seconds on one thread. `candidates`: what strategy 3 may choose from, the
    most performant first (section III-D; three in the paper).
    """

    key: str
    threads: int
    placement: Placement
    seconds: float
    serial: float
    cores: tuple[int, ...] | None = None
    candidates: tuple[Candidate, ...] = ()


class Uniform(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thread setting for all ops, as TensorFlow itself knows it."""

    intra: int
    inter: int


class Prediction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Simulated time of a round of the steps under a setting.

    `setting`: "default", "recommended", "uniform AxB" (intra A, inter B), "s1+s2", "s1+s2+s3",
    "s1+s2+s3+s4". `speedup` is over "recommended"; `corunning` is the mean number of ops in flight
    over the events of Fig. 4 (an op starts or ends).
    """

    setting: str
    seconds: float
    speedup: float
    corunning: float


class Threads(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Intra-op threads, placement and co-running (sections III-C and III-D).

    `strategy` names the chosen prediction. `uniform` is the setting of TensorFlow itself under
    which the plan runs; when `ops` is empty it is the whole plan. `corun` turns strategy 3 on,
    `hyperthreads` strategy 4. Ops whose `serial` time is below `small` seconds are left to
    TensorFlow's own pool and are not admitted one by one.
    """

    strategy: str
    uniform: Uniform
    corun: bool
    hyperthreads: bool
    small: float
    ops: tuple[OpPlan, ...]
    predictions: tuple[Prediction, ...]


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`profile` is the SHA-256 of the profile's content, `machine` the fingerprint of the machine
    planned for, `signatures` the graphs of the steps it was made for."""

    schema: str
    created: str
    dltune: str
    profile: str
    machine: str
    machine_name: str
    cores: int
    tensorflow: str
    signatures: tuple[str, ...]
    threads: Threads | None = None
