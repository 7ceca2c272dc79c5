"""Checkpoints that are saved too often."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding, Gain
from dltune.findings.looked import at, where
from dltune.findings.seen import Seen


def find(seen: Seen) -> Iterator[Finding]:
    """Its cost: the looks that found the main thread at it."""
    saving = at(seen, "saving")
    if saving:
        yield Finding(
            "checkpoints",
            f"{saving.share:.0%} of the time goes into saving",
            f"Python was at saving{where(saving)} in {saving.share:.0%} of looks, and no step ran",
            "save less often: every few minutes, or once an epoch (save_freq, a condition on the "
            "step), or in a thread of its own (tf.train.CheckpointOptions: experimental_enable_"
            "async_checkpoint)",
            share=saving.share,
            gain=Gain(0.8 * saving.share, saving.share),
            sure="measured",
        )
