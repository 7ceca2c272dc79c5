"""A pytest plugin: with `--dltune-gate` a project's own tests hold performance limits.

    def test_parsing_is_fast(dltune_gate):
        dltune_gate.within(2e-3, lambda: parse(TEXT))             # seconds

    def test_new_is_no_slower(dltune_gate):
        dltune_gate.ratio(1.05, new=lambda: new(x), base=lambda: old(x))

Without the option such tests are skipped: a machine that does other things is no place for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from dltune.documents.gate import Verdict
    from dltune.gate.config import Config


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("dltune")
    group.addoption(
        "--dltune-gate",
        action="store_true",
        help="hold the performance limits of tests that use the fixture dltune_gate",
    )


def pytest_configure(config: pytest.Config) -> None:
    """The configuration is read before any test runs: its faults are errors of use."""
    if not config.getoption("--dltune-gate"):
        return
    from dltune.errors import UsageError
    from dltune.gate.config import load

    try:
        config.stash[_CONFIG] = load(config.rootpath, None)
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None


class Gate:
    """Holds limits of functions, with the confidence, budget and meaning of undecided that
    [tool.dltune.gate] gives. `verdicts` are those of this test so far."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.verdicts: list[Verdict] = []

    def within(self, seconds: float, function: Callable[[], object]) -> Verdict:
        """Fail the test when the median call of `function` takes longer than `seconds`."""
        from dltune.gate.functions import within

        return self._hold(within(seconds, function, self._config))

    def ratio(
        self, limit: float, *, new: Callable[[], object], base: Callable[[], object]
    ) -> Verdict:
        """Fail the test when `new` takes more than `limit` times as long as `base`: they take
        turns, in an order drawn by lot."""
        from dltune.gate.functions import ratio

        return self._hold(ratio(limit, new, base, self._config))

    def _hold(self, verdict: Verdict) -> Verdict:
        from dltune.gate.figures import sentence

        self.verdicts.append(verdict)
        lax = verdict.outcome == "undecided" and self._config.undecided == "pass"
        if verdict.outcome != "pass" and not lax:
            pytest.fail(sentence(verdict), pytrace=False)
        return verdict


_CONFIG: pytest.StashKey[Config] = pytest.StashKey()


@pytest.fixture
def dltune_gate(request: pytest.FixtureRequest) -> Gate:
    """Holds performance limits; needs --dltune-gate."""
    if _CONFIG not in request.config.stash:
        pytest.skip("performance limits are held with --dltune-gate")
    return Gate(request.config.stash[_CONFIG])
