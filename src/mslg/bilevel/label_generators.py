"""Soft labels as a function of parameters, and the gradient of the clean loss with respect to these.

With θ̂ = θ − look_ahead·∇ℓ, where ℓ(z(θ), y(φ)) is the mean loss of a batch with logits z and soft labels y, and with g
the clean gradient at θ̂,

    d(clean loss)/dφ = −look_ahead · d/dφ ⟨∂ℓ/∂z, D_g z⟩

so the tangent of the engine serves every φ: a free label per sample (`LabelTable`, as in MSLG), or one of the
generators here, whose parameters are shared by all samples.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..data.batch import Batch, call
from ..data.sample_table import SampleTable
from ..networks.head import pooled_features, recorded_inputs
from ..runtime.precision import full_precision
from .engine import BilevelOutput, Loss


def meta_loss(output: BilevelOutput, inner_loss: Loss, look_ahead: float) -> Tensor:
    """A 0-d tensor whose gradient, with respect to whatever the inner loss depends on besides the logits, is that of
    the clean loss after the look-ahead. Its value is the first-order change of the clean loss."""
    logits = output.logits.detach().requires_grad_()
    (slope,) = torch.autograd.grad(inner_loss(logits), logits, create_graph=True)
    return -look_ahead * (slope * output.tangent).sum()


class LabelEvidence(NamedTuple):
    """What a soft label may depend on."""

    given: Tensor  # (batch,)
    features: Tensor  # (batch, width)
    log_probs: Tensor  # (batch, classes)


def evidence_from(network: nn.Module, head: nn.Module, batch: Batch) -> LabelEvidence:
    """What a network says about a batch, in its present mode: its features are the inputs of its head."""
    with recorded_inputs(head) as recorded:
        log_probs = call(network, batch.inputs).log_softmax(1)
    return LabelEvidence(batch.label, pooled_features(recorded[0]), log_probs)


class LabelGenerator(nn.Module):
    """Maps evidence to (batch, classes) logarithms of soft labels. A generator writes `label_logits`."""

    def forward(self, evidence: LabelEvidence) -> Tensor:
        with full_precision(evidence.given.device):
            return self.label_logits(evidence).log_softmax(1)

    def label_logits(self, evidence: LabelEvidence) -> Tensor:
        """(batch, classes) label logits, with a graph to the parameters."""
        raise NotImplementedError


class LabelsFromFeatures(LabelGenerator):
    """A linear layer of the features: the given label has no say."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.layer = nn.Linear(width, classes)

    def label_logits(self, evidence: LabelEvidence) -> Tensor:
        logits: Tensor = self.layer(evidence.features)
        return logits


class CorrectedLabels(LabelGenerator):
    """A network of the features and an embedding of the given label."""

    def __init__(self, width: int, classes: int, *, embedding: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(classes, embedding)
        layers = [nn.Linear(width + embedding, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, classes)]
        self.layers = nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])
        nn.init.xavier_uniform_(self.embedding.weight)
        for layer in layers:
            nn.init.xavier_normal_(layer.weight)
            nn.init.zeros_(layer.bias)

    def label_logits(self, evidence: LabelEvidence) -> Tensor:
        logits: Tensor = self.layers(torch.cat([evidence.features, self.embedding(evidence.given)], 1))
        return logits


class GatedLabels(LabelGenerator):
    """The given label with probability w, and the prediction otherwise. A network of the features and an embedding of
    the given label says w."""

    def __init__(self, width: int, classes: int, *, embedding: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(classes, embedding)
        self.layers = nn.Sequential(nn.Linear(width + embedding, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def gate(self, features: Tensor, label: Tensor) -> Tensor:
        """(batch,) logits of the probability that the label is right."""
        with full_precision(label.device):
            logits: Tensor = self.layers(torch.cat([features, self.embedding(label)], 1))
        return logits.squeeze(1)

    def label_logits(self, evidence: LabelEvidence) -> Tensor:
        gate = self.gate(evidence.features, evidence.given).unsqueeze(1)
        predicted = F.logsigmoid(-gate) + evidence.log_probs
        column = evidence.given.unsqueeze(1)
        kept = torch.logaddexp(F.logsigmoid(gate), predicted.gather(1, column))
        return predicted.scatter(1, column, kept)


class WeightedEvidence(LabelGenerator):
    """Three parameters for all labels: the weights of log T[·, given], of log p and of the given label itself. At the
    start the label is the posterior of the transition matrix.

    Args:
        transition: (classes, classes) P(given = j | true = i), without zeros.
    """

    log_columns: Tensor

    def __init__(self, transition: Tensor) -> None:
        super().__init__()
        self.register_buffer("log_columns", transition.log().t().contiguous())
        self.weights = nn.Parameter(torch.tensor([1.0, 1.0, 0.0], dtype=transition.dtype))

    def label_logits(self, evidence: LabelEvidence) -> Tensor:
        matrix, prediction, given = self.weights.unbind()
        logits = matrix * self.log_columns[evidence.given] + prediction * evidence.log_probs
        column = evidence.given.unsqueeze(1)
        return logits.scatter_add(1, column, given.expand(column.shape))


class GeneratedLabels(nn.Module):
    """The latest soft label of every sample, for reports; the given one where none has been generated yet.

    Args:
        given: (samples,) given labels.
        table: (samples, classes), of zeros.
    """

    given: Tensor

    def __init__(self, given: Tensor, table: SampleTable) -> None:
        super().__init__()
        self.register_buffer("given", given, persistent=False)
        self.table = table

    def remember(self, index: Tensor, soft: Tensor) -> None:
        """Keep the (batch, classes) soft labels of these samples."""
        self.table[index] = soft.detach()

    def soft(self, index: Tensor) -> Tensor:
        """(batch, classes) soft labels of these samples."""
        rows = self.table[index]
        given = torch.zeros_like(rows).scatter_(1, self.given[index].unsqueeze(1), 1.0)
        return torch.where(rows.sum(1, keepdim=True) > 0, rows, given)
