"""How far a run has moved its labels, in one sentence; or why it has not."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..data.sample_table import pieces_of
from ..training.loop import EpochRecord
from ..training.losses import total_variation
from ..training.method import Method

FAR = 0.1  # total variation beyond which a label counts as moved
STILL = 0.01  # if no label has moved by more than this, none has moved


def labels_learned(method: Method, index: Tensor, records: Sequence[EpochRecord]) -> dict[str, Any] | None:
    """What was learned about the labels of these samples; None if the method has no soft labels.

    Args:
        method: after training.
        index: (samples,) the training samples.
        records: of every epoch.

    Returns:
        "sentence"; "samples"; "moved", the number of labels that are more than 0.1 from their start; "mean" and
        "largest" total variation from it; "changed_class", the number of labels whose most probable class has changed.
    """
    distances, changed = [], 0
    for piece in pieces_of(index.to(method.task.device), method.task.classes):
        with torch.no_grad():
            start, learned = method.start_labels(piece), method.soft_labels(piece)
        if start is None or learned is None:
            return None
        distances.append(total_variation(start, learned).double().cpu())
        changed += int((start.argmax(1) != learned.argmax(1)).sum())
    moves = torch.cat(distances)
    found = {
        "samples": len(moves),
        "moved": int((moves > FAR).sum()),
        "mean": float(moves.mean()),
        "largest": float(moves.max()),
        "changed_class": changed,
    }
    return {"sentence": _sentence(found, method, records), **found}


def _sentence(found: dict[str, Any], method: Method, records: Sequence[EpochRecord]) -> str:
    if found["largest"] > STILL:
        return (
            f"soft labels, for training: {found['moved']:,} of {found['samples']:,} moved by more than {FAR} (mean "
            f"{found['mean']:.2g}, total variation), {found['changed_class']:,} changed class; which given labels are "
            "flagged is decided afterwards, by all evidence"
        )
    if (reason := method.labels_fixed(len(records))) is None:
        reason = f"the largest move was {found['largest']:.1g} (total variation) because the step is too small"
        steps = [record.metrics["labels/step"] for record in records if "labels/step" in record.metrics]
        if steps:
            reason += f": the label logits moved by {statistics.fmean(steps):.1g} per epoch"
        if method.label_advice:
            reason += f"; try {method.label_advice}"
    return f"the labels did not move: {reason}"
