"""Lets tests import the modules that stand beside this file, such as `synthetic`."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from hypothesis import settings

sys.path.append(str(Path(__file__).parent))

# no deadlines: machines are shared; the same examples in every run, so that a failure comes again
settings.register_profile("dltune", deadline=None, derandomize=True)
settings.load_profile("dltune")

# a suite started in the background ignores these and hands that on; the jobs here must hear them
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
