"""What is known of a job when findings are looked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dltune.analysis.figures import Analysis
    from dltune.documents.horovod import Horovod
    from dltune.documents.io import Io
    from dltune.documents.observation import Observation


@dataclass(frozen=True)
class Seen:
    """None: not looked at. A rule that needs what there is not finds nothing."""

    observation: Observation | None = None
    profile: Analysis | None = None
    io: Io | None = None
    horovod: Horovod | None = None

    @property
    def framework(self) -> str | None:
        """What the job runs on, as documents call it; None: nobody knows."""
        if self.profile:
            return self.profile.profile.framework.name
        main = self.observation.main if self.observation else None
        return main.framework if main else None
