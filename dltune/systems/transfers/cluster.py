"""The tasks of the cluster that a job runs in, as TF_CONFIG names them."""

from __future__ import annotations

import json
from collections.abc import Mapping

from dltune.base.errors import UsageError
from dltune.schemas.profile import job
from dltune.systems.transfers.section import Transfers

VARIABLE = "TF_CONFIG"


def tasks(environment: Mapping[str, str]) -> frozenset[str]:
    """Return tasks as "/job:ps/task:0"; none where no cluster is described in a form that is
    understood."""
    try:
        cluster = json.loads(environment.get(VARIABLE, "null"))["cluster"]
        return frozenset(
            f"/job:{name}/task:{number}"
            for name, addresses in cluster.items()
            for number in (addresses if isinstance(addresses, dict) else range(len(addresses)))
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return frozenset()


def require_planned(section: Transfers, environment: Mapping[str, str]) -> None:
    """Raises UsageError when the cluster lacks a task of the plan, or has other receivers."""
    there = tasks(environment)
    receivers = {receiver.task for receiver in section.receivers}
    senders = {t.sender for receiver in section.receivers for t in receiver.transfers}
    missing = sorted((receivers | senders) - there)
    more = sorted(one for one in there - receivers if job(one) in set(map(job, receivers)))
    if there and (missing or more):
        told = [f"lacks {', '.join(missing)}"] if missing else []
        told += [f"also has {', '.join(more)}"] if more else []
        raise UsageError(
            f"the cluster in {VARIABLE} differs from the cluster that the transfers are planned "
            "for: it " + " and ".join(told),
            remedy="plan for this cluster (dltune plan transfers --workers N --ps N), or pass "
            "--partial to order the transfers that still apply",
        )
