"""Advice without measuring: which settings around the ops a profile speaks for, a file for each.

batch_norm      layers in pieces, for which there is a fused kernel
onednn          its kernels are off
threads         more of them than CPUs
faults          memory that is mapped anew in each step
input_wait      steps that wait for their data
between_steps   Python between the steps
small_ops       what a step of thousands of ops loses between them
"""

from __future__ import annotations

from dltune.analysis.advice.advice import Advice, Gain
from dltune.analysis.advice.batch_norm import batch_norm
from dltune.analysis.advice.between_steps import between_steps
from dltune.analysis.advice.faults import faults
from dltune.analysis.advice.input_wait import input_wait
from dltune.analysis.advice.onednn import onednn
from dltune.analysis.advice.small_ops import small_ops
from dltune.analysis.advice.threads import threads
from dltune.analysis.figures import Analysis, analyse
from dltune.documents.profile import Profile

__all__ = ["Advice", "Gain", "advice_of", "advise"]


def advise(profile: Profile) -> list[Advice]:
    """What `dltune tune` should try first, the largest expected gain first."""
    return advice_of(analyse(profile))


def advice_of(analysis: Analysis) -> list[Advice]:
    kinds = (batch_norm, onednn, threads, faults, input_wait, between_steps, small_ops)
    found = [advice for kind in kinds if (advice := kind(analysis))]
    return sorted(found, key=_promise, reverse=True)


def _promise(advice: Advice) -> float:
    """What is not to be told comes first: oneDNN, or too many threads, may be worth several x."""
    return (advice.gain.low + advice.gain.high) / 2 if advice.gain else 1.0
