"""The paper's settings of MSLG in the library's terms."""

from __future__ import annotations

from typing import Any, Literal

from ...registry import expect_name
from ...training.method import Task


def paper_settings(
    alpha: float, beta: float, *, batch_size: int, classes: int, reduction: Literal["batch", "element"] = "batch"
) -> dict[str, float]:
    """The paper's α and β as `look_ahead`, `label_rate` and `loss_scale`.

    With reduction "element" losses are means over samples and classes, as in the authors' code: the look-ahead, the
    label step and the training loss are all smaller by the number of classes.
    """
    expect_name("reduction", reduction, ("batch", "element"))
    per_class = classes if reduction == "element" else 1
    return {
        "look_ahead": alpha / per_class,
        "label_rate": alpha * beta / (batch_size * per_class),
        "loss_scale": 1 / per_class,
    }


PUBLISHED_BETA = {
    ("uniform", 20): 4000.0,
    ("uniform", 40): 4000.0,
    ("uniform", 60): 2000.0,
    ("uniform", 80): 400.0,
    ("feature-dependent", 20): 4000.0,
    ("feature-dependent", 40): 4000.0,
    ("feature-dependent", 60): 4000.0,
    ("feature-dependent", 80): 4000.0,
}


def published_beta(noise: str, rate: float) -> float:
    """The paper's β on CIFAR-10 for a kind of noise and its rate; none is published for other rates than these."""
    kinds = sorted({kind for kind, _ in PUBLISHED_BETA})
    kind = noise.removesuffix("-released")  # the same noise, made as the authors' code makes it
    expect_name("noise with a published β", kind, kinds)
    percent = 100 * rate
    if (kind, round(percent)) not in PUBLISHED_BETA or abs(percent - round(percent)) > 1e-6:
        rates = ", ".join(str(known / 100) for name, known in PUBLISHED_BETA if name == kind)
        raise ValueError(f"no β is published for {noise} noise at a rate of {rate}; there is one for {rates}")
    return PUBLISHED_BETA[kind, round(percent)]


def published(task: Task) -> dict[str, Any]:
    """CIFAR-10 as the paper says: α = 0.5, β = 4000, losses averaged over the batch."""
    scaled = paper_settings(0.5, 4000, batch_size=task.batch_size, classes=task.classes)
    form = {"prior": "given", "start": 10.0, "entropy_weight": 1.0, "loss": "reverse-kl", "finish": 0.0}
    return {**scaled, **form, "warm_up": 44 / 120}


def released(task: Task) -> dict[str, Any]:
    """CIFAR-10 as the authors' code does it: the same α and β, losses averaged over samples and classes."""
    scaled = paper_settings(0.5, 4000, batch_size=task.batch_size, classes=task.classes, reduction="element")
    return {**published(task), **scaled}
