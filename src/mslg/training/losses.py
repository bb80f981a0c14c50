"""Losses as functions of (batch, classes) log-probabilities: (batch,) values unless the docstring says otherwise."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

FEW_CLASSES = range(4, 16)  # at which torch computes a softmax one row at a time
MANY_ROWS, REGISTER = 128, 16


def log_softmax(logits: Tensor) -> Tensor:
    """(batch, classes) log-probabilities. Of few classes on a CPU by columns, many rows at once: a third of the time,
    the same to the bit; not where a gradient is needed, which would have other strides and so other sums."""
    few = logits.shape[1] in FEW_CLASSES and len(logits) >= MANY_ROWS and logits.dtype == torch.float32
    whole = len(logits) % REGISTER == 0  # what is left over is rounded otherwise
    if not (few and whole and logits.is_cpu) or (logits.requires_grad and torch.is_grad_enabled()):
        return logits.log_softmax(1)
    return logits.t().contiguous().log_softmax(0).t().contiguous()


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


def total_variation(probs: Tensor, others: Tensor) -> Tensor:
    """½ Σ |p − q|: the distance of two distributions, from 0 to 1."""
    return (probs - others).abs().sum(1) / 2


def noisy_and_clean_loss(log_probs: Tensor, soft: Tensor, verified: Tensor) -> tuple[Tensor, Tensor]:
    """Of noisy samples followed by clean ones: the mean soft cross entropy of the former, and the mean cross entropy of
    the latter (0 if there are none)."""
    noisy, clean = log_probs.split([len(soft), len(verified)])
    return soft_cross_entropy(noisy, soft).mean(), cross_entropy(clean, verified).sum() / max(1, len(verified))


def probability_tangent(log_probs: Tensor, tangent: Tensor) -> Tensor:
    """D p from D z: p ⊙ (ż − Σ pż). Its rows sum to zero."""
    probs = log_probs.exp()
    return probs * log_probability_tangent(log_probs, tangent)


def log_probability_tangent(log_probs: Tensor, tangent: Tensor) -> Tensor:
    """D log p from D z: ż − Σ pż."""
    return tangent - (log_probs.exp() * tangent).sum(1, keepdim=True)


def cross_entropy_tangent(log_probs: Tensor, label: Tensor, tangent: Tensor) -> Tensor:
    """D of the cross entropy from D z: (p − onehot)·ż."""
    return -log_probability_tangent(log_probs, tangent).gather(1, label.unsqueeze(1)).squeeze(1)


def log_mean_prediction(log_probs: Tensor) -> Tensor:
    """log of the mean prediction of a batch, one value per class."""
    return log_probs.logsumexp(0) - math.log(len(log_probs))


def batch_prior_loss(log_mean: Tensor, prior: Tensor) -> Tensor:
    """−Σ prior·log(mean prediction of the batch): joint optimization's L_p, one value per batch."""
    return -(prior * log_mean).sum()


def generalized_cross_entropy(log_probs: Tensor, label: Tensor, q: float) -> Tensor:
    """(1 − p^q)/q at the label: cross entropy as q → 0, 1 − p at q = 1."""
    losses = cross_entropy(log_probs, label)
    return -torch.expm1(-q * losses) / q if q > 0 else losses  # 1 − p^q would lose all digits at a small q


def bootstrap_soft(log_probs: Tensor, label: Tensor, weight: float) -> Tensor:
    """Cross entropy to weight·label + (1 − weight)·p. The target moves with p: its part is the entropy of p."""
    return weight * cross_entropy(log_probs, label) + (1 - weight) * entropy(log_probs)


def bootstrap_hard(log_probs: Tensor, label: Tensor, weight: float) -> Tensor:
    """Cross entropy to weight·label + (1 − weight)·(the class predicted now)."""
    return weight * cross_entropy(log_probs, label) - (1 - weight) * log_probs.max(1).values


def reverse_cross_entropy(log_probs: Tensor, label: Tensor, log_zero: float) -> Tensor:
    """−Σ p·log(one-hot label) with log 0 := log_zero, which is −log_zero·(1 − p) at the label."""
    return log_zero * torch.expm1(-cross_entropy(log_probs, label))


def forward_cross_entropy(log_probs: Tensor, label: Tensor, transition: Tensor) -> Tensor:
    """−log (pᵀT) at the given label, with T[i, j] = P(given j | true i): cross entropy when T is the identity."""
    # The smallest normal number stands for 0: a label that T calls impossible costs much, but not infinitely much.
    log_columns = transition.clamp_min(torch.finfo(transition.dtype).tiny).log().t()
    return -(log_probs + log_columns[label]).logsumexp(1)


def backward_cross_entropy(log_probs: Tensor, label: Tensor, inverse: Tensor) -> Tensor:
    """Σ_c (T⁻¹)[given, c]·(−log p_c): its mean over given labels drawn from T is the true label's cross entropy."""
    return -(inverse[label] * log_probs).sum(1)


def early_learning_penalty(probs: Tensor, target: Tensor) -> Tensor:
    """log(1 − ⟨target, p⟩): lowest where the prediction agrees with what was predicted early on."""
    return (1 - (target * probs).sum(1)).log()
