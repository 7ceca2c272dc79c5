"""The tasks of the cluster that a job runs in, as TF_CONFIG names them."""

from __future__ import annotations

import json
from collections.abc import Mapping

from dltune.documents.sections.transfers import Transfers
from dltune.errors import UsageError

VARIABLE = "TF_CONFIG"


def tasks(environment: Mapping[str, str]) -> frozenset[str]:
    """As "/job:ps/task:0"; none where no cluster is told of in a form that is understood."""
    try:
        cluster = json.loads(environment.get(VARIABLE, "null"))["cluster"]
        return frozenset(
            f"/job:{job}/task:{number}"
            for job, addresses in cluster.items()
            for number in (addresses if isinstance(addresses, dict) else range(len(addresses)))
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return frozenset()


def require_planned(section: Transfers, environment: Mapping[str, str]) -> None:
    """Raises UsageError when the cluster has other senders or receivers than the plan."""
    there = tasks(environment)
    planned = {receiver.task for receiver in section.receivers} | {
        transfer.sender for receiver in section.receivers for transfer in receiver.transfers
    }
    jobs = {_job(one) for one in planned}
    other = {one for one in there if _job(one) in jobs} ^ planned
    if there and other:
        missing, more = sorted(other & planned), sorted(other - planned)
        told = [f"has no {', '.join(missing)}"] if missing else []
        told += [f"has {', '.join(more)} besides"] if more else []
        raise UsageError(
            f"the cluster in {VARIABLE} is not the one of the plan's transfers: it "
            + " and ".join(told),
            remedy="plan for it (dltune plan transfers --workers N --ps N), or pass --partial to "
            "order what still applies",
        )


def _job(task: str) -> str:
    return task.partition("/task:")[0]
