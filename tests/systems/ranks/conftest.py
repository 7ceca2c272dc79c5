"""`plain_ranks("gloo")`: what two ranks of stock Horovod train."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import two_ranks


@pytest.fixture(scope="session")
def plain_ranks(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[two_ranks.Controller], two_ranks.Trained]:
    """`plain_ranks("gloo")`: ONE_THREAD on stock Horovod, run once; gloo's with a timeline, the
    writer of which keeps a core busy."""
    ended: dict[two_ranks.Controller, two_ranks.Trained] = {}

    def get(controller: two_ranks.Controller) -> two_ranks.Trained:
        if reason := two_ranks.missing(controller):
            pytest.skip(reason)
        if controller not in ended:
            folder = tmp_path_factory.mktemp(controller)
            timeline = {"HOROVOD_TIMELINE": str(folder / "timeline.json")}
            env = timeline if controller == "gloo" else {}
            with two_ranks.job(folder, controller, two_ranks.ONE_THREAD, env=env) as running:
                ended[controller] = two_ranks.trained(running)
        return ended[controller]

    return get
