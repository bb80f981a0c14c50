"""Losses as pure functions of log-probabilities. One value a sample unless the name says otherwise."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def cross_entropy(log_probs: Tensor, label: Tensor) -> Tensor:
    """−log p of the label."""
    return F.nll_loss(log_probs, label, reduction="none")


def entropy(log_probs: Tensor) -> Tensor:
    """H(p): L_e of the paper."""
    return -(log_probs.exp() * log_probs).sum(1)


def forward_kl(log_probs: Tensor, log_soft: Tensor) -> Tensor:
    """KL(soft label ‖ prediction): L_c,1 of the paper."""
    return (log_soft.exp() * (log_soft - log_probs)).sum(1)


def reverse_kl(log_probs: Tensor, log_soft: Tensor) -> Tensor:
    """KL(prediction ‖ soft label): L_c,2 of the paper, and PENCIL's classification loss."""
    return (log_probs.exp() * (log_probs - log_soft)).sum(1)


def soft_cross_entropy(log_probs: Tensor, soft: Tensor) -> Tensor:
    """−Σ soft·log p."""
    return -(soft * log_probs).sum(1)


def probability_tangent(log_probs: Tensor, tangent: Tensor) -> Tensor:
    """D p from D z: p ⊙ (ż − Σ pż). Its rows sum to zero."""
    probs = log_probs.exp()
    return probs * log_probability_tangent(log_probs, tangent)


def log_probability_tangent(log_probs: Tensor, tangent: Tensor) -> Tensor:
    """D log p from D z: ż − Σ pż."""
    return tangent - (log_probs.exp() * tangent).sum(1, keepdim=True)
