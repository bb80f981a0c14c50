"""Label generators: what each says, and one gradient for all of them."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mslg.bilevel import Bilevel
from mslg.bilevel.label_generators import (
    CorrectedLabels,
    GatedLabels,
    GeneratedLabels,
    LabelEvidence,
    LabelGenerator,
    LabelsFromFeatures,
    WeightedEvidence,
    evidence_from,
    meta_loss,
)
from mslg.bilevel.label_table import LabelTable
from mslg.data.sample_table import SampleTable
from mslg.methods.mslg.step import label_direction
from mslg.networks.head import feature_width, find_head, pooled_features
from mslg.training.losses import forward_kl, reverse_kl, soft_cross_entropy
from tests.support import toy

TRANSITION = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.25, 0.15, 0.6]], dtype=torch.float64)
GENERATORS: dict[str, Callable[[], LabelGenerator]] = {
    "features": lambda: LabelsFromFeatures(4, 3),
    "corrected": lambda: CorrectedLabels(4, 3, embedding=5, hidden=6),
    "gated": lambda: GatedLabels(4, 3, embedding=5, hidden=6),
    "shared": lambda: WeightedEvidence(TRANSITION),
}
LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cross entropy": lambda log_probs, log_soft: soft_cross_entropy(log_probs, log_soft.exp()),
    "reverse KL": reverse_kl,
    "forward KL": forward_kl,
}


def made(name: str) -> LabelGenerator:
    torch.manual_seed(3)
    return GENERATORS[name]().double()


def evidence() -> LabelEvidence:
    network = toy.network()
    with torch.no_grad():
        return evidence_from(network, find_head(network)[1], toy.noisy_batch())


def gradients(
    log_soft: Callable[[], Tensor], leaves: list[Tensor], loss: Callable[[Tensor, Tensor], Tensor], distance: float
) -> tuple[list[Tensor], list[Tensor]]:
    """Of the clean loss with respect to the leaves: by the tangent, and by double backward through the look-ahead."""
    network, noisy, clean = toy.network(), toy.noisy_batch(), toy.clean_batch()

    def inner(logits: Tensor) -> Tensor:
        return loss(logits.log_softmax(1), log_soft()).mean()

    output = Bilevel(network)(
        noisy.inputs, inner, clean.inputs, lambda z: F.cross_entropy(z, clean.label), look_ahead=distance
    )
    found = torch.autograd.grad(meta_loss(output, inner, distance), leaves)
    parameters = list(network.parameters())
    slopes = torch.autograd.grad(
        inner(toy.at_weights(network, parameters, noisy.inputs)), parameters, create_graph=True
    )
    ahead = [p - distance * g for p, g in zip(parameters, slopes, strict=True)]
    expected = torch.autograd.grad(F.cross_entropy(toy.at_weights(network, ahead, clean.inputs), clean.label), leaves)
    return list(found), list(expected)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", GENERATORS)
def test_the_gradient_is_that_of_double_backward(name: str, loss: str) -> None:
    generator, known = made(name), evidence()
    found, expected = gradients(lambda: generator(known), list(generator.parameters()), LOSSES[loss], 0.7)
    assert max(float((a - b).abs().max()) for a, b in zip(found, expected, strict=True)) < 1e-14
    assert max(float(g.abs().max()) for g in found) > 1e-4


@pytest.mark.parametrize("loss", ["reverse-kl", "forward-kl"])
def test_a_free_label_per_sample_gives_the_label_step_of_mslg(loss: str) -> None:
    batch, network = toy.noisy_batch(), toy.network()
    table = LabelTable(batch.label, 3, start=1.5, dtype=torch.float64)
    logits = table.logits(batch.index).requires_grad_()
    classification = LOSSES[loss.replace("-kl", " KL")]
    (found,), (expected,) = gradients(lambda: logits.log_softmax(1), [logits], classification, 0.5)
    clean = toy.clean_batch()
    output = Bilevel(network)(
        batch.inputs,
        lambda z: classification(z.log_softmax(1), table.log_soft(batch.index)).mean(),
        clean.inputs,
        lambda z: F.cross_entropy(z, clean.label),
        look_ahead=0.5,
    )
    log_probs = output.logits.log_softmax(1).detach()
    direction = label_direction(log_probs, table.log_soft(batch.index), output.tangent, loss)  # type: ignore[arg-type]
    assert torch.allclose(found, expected, atol=1e-15)
    # On the label logits themselves the two differ by a constant per sample, which the softmax removes.
    moved = 0.5 / 4 * direction
    centred = [rows - rows.mean(1, keepdim=True) for rows in (found, moved)]
    assert torch.allclose(*centred, atol=1e-15)


@pytest.mark.parametrize("name", GENERATORS)
def test_soft_labels_are_distributions(name: str) -> None:
    soft = made(name)(evidence()).exp()
    assert soft.shape == (4, 3)
    assert torch.allclose(soft.sum(1), torch.ones(4, dtype=torch.float64))


def test_a_gate_mixes_the_given_label_and_the_prediction() -> None:
    generator, known = made("gated"), evidence()
    assert isinstance(generator, GatedLabels)
    soft = generator(known).exp()
    for row in range(4):
        both = torch.cat([known.features[row], generator.embedding.weight[known.given[row]]])
        keep = 1 / (1 + math.exp(-float(generator.layers(both).detach())))
        for label in range(3):
            expected = keep * (label == int(known.given[row])) + (1 - keep) * math.exp(known.log_probs[row, label])
            assert float(soft[row, label].detach()) == pytest.approx(expected, abs=1e-14)


def test_shared_weights_begin_at_the_posterior_and_can_return_the_given_label() -> None:
    generator, known = made("shared"), evidence()
    assert isinstance(generator, WeightedEvidence)
    assert sum(p.numel() for p in generator.parameters()) == 3
    joint = TRANSITION.t()[known.given] * known.log_probs.exp()
    assert torch.allclose(generator(known).exp(), joint / joint.sum(1, keepdim=True))
    generator.weights.data = torch.tensor([0.0, 0.0, 50.0], dtype=torch.float64)
    assert torch.equal(generator(known).argmax(1), known.given)


def test_labels_are_the_given_ones_until_others_are_generated() -> None:
    labels = GeneratedLabels(torch.tensor([2, 0, 1]), SampleTable(3, 3))
    labels.remember(torch.tensor([1]), torch.tensor([[0.2, 0.5, 0.3]]))
    expected = torch.tensor([[0.0, 0.0, 1.0], [0.2, 0.5, 0.3], [0.0, 1.0, 0.0]])
    assert torch.allclose(labels.soft(torch.arange(3)), expected)


def test_the_features_of_a_head_at_several_positions_are_their_mean() -> None:
    inputs = torch.arange(24.0).view(2, 3, 4).bfloat16()
    assert torch.equal(pooled_features(inputs), inputs.float().mean(1))
    assert feature_width(nn.Linear(4, 3)) == 4
    with pytest.raises(ValueError, match=r"the head is a Conv2d.*name a Linear layer with head="):
        feature_width(nn.Conv2d(4, 3, 1))
