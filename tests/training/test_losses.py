"""Every loss against a slow version with loops, against hand-checked numbers, and in its limits."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from mslg.training import losses

Z = torch.tensor([[2.0, 1.0, 0.1], [0.0, -1.0, 3.0]], dtype=torch.float64)
GIVEN = torch.tensor([0, 1])
LOG_PROBS = Z.log_softmax(1)
SOFT_LOGITS = torch.tensor([[10.0, 0.0, 0.0], [1.0, 2.0, 0.5]], dtype=torch.float64)
UNIFORM = torch.full((3, 3), 0.1, dtype=torch.float64).fill_diagonal_(0.8)
ASYMMETRIC = torch.tensor([[0.9, 0.1, 0.0], [0.0, 0.7, 0.3], [0.2, 0.0, 0.8]], dtype=torch.float64)
LOG_ZERO = math.log(1e-4)


def random_example(samples: int = 7, classes: int = 5, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(samples, classes, dtype=torch.float64, generator=generator)
    return logits, torch.randint(classes, (samples,), generator=generator)


def random_transition(classes: int = 5) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    noise = torch.rand(classes, classes, dtype=torch.float64, generator=generator)
    return 0.7 * torch.eye(classes, dtype=torch.float64) + 0.3 * noise / noise.sum(1, keepdim=True)


def probabilities(row: Tensor) -> list[float]:
    powers = [math.exp(float(value)) for value in row]
    return [power / sum(powers) for power in powers]


@pytest.mark.parametrize("rows", [3, 128, 300, 1024])
@pytest.mark.parametrize("classes", [2, 5, 10, 15, 16, 40])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_log_softmax_is_that_of_torch_to_the_bit(rows: int, classes: int, kind: torch.dtype) -> None:
    """In memory as torch lays it out, and with a graph where one is needed."""
    logits = 5 * torch.randn(rows, classes, dtype=kind, generator=torch.Generator().manual_seed(0))
    log_probs = losses.log_softmax(logits)
    assert torch.equal(log_probs, logits.log_softmax(1))
    assert log_probs.is_contiguous()
    (gradient,) = torch.autograd.grad(losses.log_softmax(logits.requires_grad_())[:, 0].sum(), logits)
    assert gradient.is_contiguous()


def slow_generalized(p: list[float], label: int, q: float) -> float:
    return (1 - p[label] ** q) / q


def slow_soft(p: list[float], label: int, weight: float) -> float:
    total = 0.0
    for c, value in enumerate(p):
        total -= (weight * (c == label) + (1 - weight) * value) * math.log(value)
    return total


def slow_hard(p: list[float], label: int, weight: float) -> float:
    predicted = p.index(max(p))
    return -sum((weight * (c == label) + (1 - weight) * (c == predicted)) * math.log(p[c]) for c in range(len(p)))


def slow_reverse(p: list[float], label: int, log_zero: float) -> float:
    return -sum(value * (0.0 if c == label else log_zero) for c, value in enumerate(p))


def slow_forward(p: list[float], label: int, transition: Tensor) -> float:
    return -math.log(sum(value * float(transition[i, label]) for i, value in enumerate(p)))


def slow_backward(p: list[float], label: int, inverse: Tensor) -> float:
    return sum(float(inverse[label, c]) * -math.log(value) for c, value in enumerate(p))


@pytest.mark.parametrize(
    ("fast", "slow", "setting"),
    [
        (losses.generalized_cross_entropy, slow_generalized, 0.7),
        (losses.generalized_cross_entropy, slow_generalized, 0.3),
        (losses.bootstrap_soft, slow_soft, 0.95),
        (losses.bootstrap_hard, slow_hard, 0.8),
        (losses.reverse_cross_entropy, slow_reverse, LOG_ZERO),
        (losses.forward_cross_entropy, slow_forward, random_transition()),
        (losses.backward_cross_entropy, slow_backward, torch.linalg.inv(random_transition())),
    ],
)
def test_a_loss_equals_its_slow_version(fast: Callable, slow: Callable, setting: float | Tensor) -> None:
    logits, label = random_example()
    expected = [slow(probabilities(row), int(own), setting) for row, own in zip(logits, label, strict=True)]
    assert fast(logits.log_softmax(1), label, setting).tolist() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (losses.cross_entropy(LOG_PROBS, GIVEN), [0.41703001627783354, 4.065883903757429]),
        (losses.entropy(LOG_PROBS), [0.846738178760252, 0.2743130736734324]),
        (losses.generalized_cross_entropy(LOG_PROBS, GIVEN, 0.3), [0.3919976288152516, 2.349001654559557]),
        (losses.generalized_cross_entropy(LOG_PROBS, GIVEN, 0.7), [0.36167496498808904, 1.3456153337079082]),
        (losses.generalized_cross_entropy(LOG_PROBS, GIVEN, 1.0), [0.3409988611140321, 0.9828521744544796]),
        (losses.generalized_cross_entropy(LOG_PROBS, GIVEN, 1e-6), [0.4170299293670965, 4.065875638059602]),
        (losses.bootstrap_soft(LOG_PROBS, GIVEN, 0.95), [0.43851542440195446, 3.8763053622532295]),
        (losses.bootstrap_hard(LOG_PROBS, GIVEN, 0.8), [0.41703001627783354, 3.2658839037574294]),
        (losses.reverse_cross_entropy(LOG_PROBS, GIVEN, LOG_ZERO), [3.140715577316469, 9.052403062062671]),
        (losses.reverse_cross_entropy(LOG_PROBS, GIVEN, -4.0), [1.3639954444561284, 3.9314086978179184]),
        (losses.reverse_cross_entropy(LOG_PROBS, GIVEN, -6.0), [2.045993166684193, 5.8971130467268775]),
        (losses.forward_cross_entropy(LOG_PROBS, GIVEN, UNIFORM), [0.5774983367246813, 2.1892253556525167]),
        (losses.forward_cross_entropy(LOG_PROBS, GIVEN, ASYMMETRIC), [0.4896934834757253, 4.094460160523627]),
        (
            losses.backward_cross_entropy(LOG_PROBS, GIVEN, torch.linalg.inv(ASYMMETRIC)),
            [0.37193197706214726, 6.065883903757429],
        ),
        (losses.reverse_kl(LOG_PROBS, SOFT_LOGITS.log_softmax(1)), [2.5633412281175367, 1.6410276608272452]),
        (losses.forward_kl(LOG_PROBS, SOFT_LOGITS.log_softmax(1)), [0.41616295222648164, 2.367723216991699]),
    ],
)
def test_a_loss_has_the_hand_checked_values(found: Tensor, expected: list[float]) -> None:
    assert found.tolist() == pytest.approx(expected, abs=1e-9)


def test_values_of_known_wrong_versions_do_not_come_out() -> None:
    plain = losses.cross_entropy(LOG_PROBS, GIVEN)
    symmetric = float((0.1 * plain + losses.reverse_cross_entropy(LOG_PROBS, GIVEN, LOG_ZERO)).mean())
    assert symmetric == pytest.approx(6.320705015691334)
    assert symmetric != pytest.approx(1.32909, abs=0.1)  # log-softmax of probabilities and of the one-hot label
    for transition, wrong in ((ASYMMETRIC, 1.13974), (torch.eye(3, dtype=torch.float64), 1.15718)):
        # logits mixed instead of probabilities, and a second softmax
        assert float(losses.forward_cross_entropy(LOG_PROBS, GIVEN, transition).mean()) != pytest.approx(wrong, abs=0.1)


def gradient(loss: Callable[[Tensor, Tensor], Tensor], logits: Tensor, label: Tensor) -> Tensor:
    logits = logits.clone().requires_grad_()
    (result,) = torch.autograd.grad(loss(logits.log_softmax(1), label).sum(), logits)
    return result


def test_generalized_cross_entropy_lies_between_cross_entropy_and_absolute_error() -> None:
    logits, label = random_example()
    log_probs = logits.log_softmax(1)
    plain = losses.cross_entropy(log_probs, label)
    assert torch.equal(losses.generalized_cross_entropy(log_probs, label, 0.0), plain)
    assert torch.allclose(losses.generalized_cross_entropy(log_probs, label, 1e-6), plain, atol=1e-4)
    single = losses.generalized_cross_entropy(log_probs.float(), label, 1e-6)
    assert torch.allclose(single, plain.float(), atol=1e-4), "1 − p^q would be lost in single precision"
    chosen = log_probs.exp().gather(1, label.unsqueeze(1)).squeeze(1)
    assert torch.allclose(losses.generalized_cross_entropy(log_probs, label, 1.0), 1 - chosen)
    one_hot = torch.nn.functional.one_hot(label, 5)
    expected = chosen.unsqueeze(1) ** 0.7 * (log_probs.exp() - one_hot)
    assert torch.allclose(gradient(lambda p, y: losses.generalized_cross_entropy(p, y, 0.7), logits, label), expected)


@pytest.mark.parametrize("loss", [losses.bootstrap_soft, losses.bootstrap_hard])
def test_bootstrap_with_all_weight_on_the_label_is_cross_entropy(loss: Callable) -> None:
    logits, label = random_example()
    log_probs = logits.log_softmax(1)
    assert torch.equal(loss(log_probs, label, 1.0), losses.cross_entropy(log_probs, label))
    mine = gradient(lambda p, y: loss(p, y, 1.0), logits, label)
    assert torch.allclose(mine, gradient(losses.cross_entropy, logits, label), atol=1e-15)


def test_the_gradient_of_soft_bootstrap_flows_through_the_target() -> None:
    logits, label = random_example()
    mine = gradient(lambda p, y: losses.bootstrap_soft(p, y, 0.95), logits, label)
    p = logits.softmax(1)
    h = losses.entropy(p.log()).unsqueeze(1)
    expected = 0.95 * (p - torch.nn.functional.one_hot(label, 5)) - 0.05 * p * (p.log() + h)
    assert torch.allclose(mine, expected)

    def detached(log_probs: Tensor, label: Tensor) -> Tensor:
        target = 0.95 * torch.nn.functional.one_hot(label, 5) + 0.05 * log_probs.detach().exp()
        return losses.soft_cross_entropy(log_probs, target)

    assert not torch.allclose(mine, gradient(detached, logits, label), atol=1e-3)


def test_hard_bootstrap_pulls_towards_the_predicted_class_as_a_constant() -> None:
    logits, label = random_example()
    mine = gradient(lambda p, y: losses.bootstrap_hard(p, y, 0.8), logits, label)
    one_hot = torch.nn.functional.one_hot
    expected = logits.softmax(1) - 0.8 * one_hot(label, 5) - 0.2 * one_hot(logits.argmax(1), 5)
    assert torch.allclose(mine, expected)


def test_the_gradient_of_reverse_cross_entropy_is_that_of_the_probability() -> None:
    logits, label = random_example()

    def probability(log_probs: Tensor, label: Tensor) -> Tensor:
        return log_probs.exp().gather(1, label.unsqueeze(1))

    mine = gradient(lambda p, y: losses.reverse_cross_entropy(p, y, LOG_ZERO), logits, label)
    assert torch.allclose(mine, LOG_ZERO * gradient(probability, logits, label))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_forward_correction_without_noise_is_cross_entropy(dtype: torch.dtype) -> None:
    logits, label = random_example()
    log_probs = logits.to(dtype).log_softmax(1)
    eye = torch.eye(5, dtype=dtype)
    assert torch.equal(losses.forward_cross_entropy(log_probs, label, eye), losses.cross_entropy(log_probs, label))
    far = torch.tensor([[0.0, 60.0]], dtype=dtype).log_softmax(1)  # the label has a probability of 1e-26
    found = losses.forward_cross_entropy(far, torch.tensor([0]), torch.eye(2, dtype=dtype))
    assert torch.allclose(found, torch.tensor([60.0], dtype=dtype))


def test_forward_correction_learns_nothing_from_labels_that_are_pure_noise() -> None:
    logits, label = random_example()
    transition = torch.full((5, 5), 0.2, dtype=torch.float64)
    found = losses.forward_cross_entropy(logits.log_softmax(1), label, transition)
    assert torch.allclose(found, torch.full((7,), math.log(5), dtype=torch.float64))
    slope = gradient(lambda p, y: losses.forward_cross_entropy(p, y, transition), logits, label)
    assert slope.abs().max() < 1e-15


def test_a_label_that_the_matrix_calls_impossible_has_a_finite_loss() -> None:
    transition = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    log_probs = torch.zeros(1, 2).log_softmax(1)
    assert torch.isfinite(losses.forward_cross_entropy(log_probs, torch.tensor([1]), transition)).all()


def test_the_mean_of_the_backward_loss_over_the_noise_is_the_loss_of_the_true_label() -> None:
    logits, label = random_example()
    log_probs, transition = logits.log_softmax(1), random_transition()
    inverse = torch.linalg.inv(transition)
    mean = torch.zeros(7, dtype=torch.float64)
    for given in range(5):
        corrected = losses.backward_cross_entropy(log_probs, torch.full((7,), given), inverse)
        mean += transition[label, given] * corrected
    assert torch.allclose(mean, losses.cross_entropy(log_probs, label), atol=1e-12)


def test_the_early_learning_penalty_falls_with_agreement() -> None:
    probs = torch.tensor([[0.9, 0.1], [0.1, 0.9]])
    target = torch.tensor([[0.8, 0.2], [0.8, 0.2]])
    found = losses.early_learning_penalty(probs, target)
    assert found.tolist() == pytest.approx([math.log(1 - 0.74), math.log(1 - 0.26)], rel=1e-5)


def test_tangents_are_derivatives_along_a_direction_of_the_logits() -> None:
    logits, label = random_example()
    direction, _ = random_example(seed=4)
    log_probs, tiny = logits.log_softmax(1), 1e-6
    ahead, behind = ((logits + sign * tiny * direction).log_softmax(1) for sign in (1, -1))
    for found, expected in (
        (losses.log_probability_tangent(log_probs, direction), (ahead - behind) / (2 * tiny)),
        (losses.probability_tangent(log_probs, direction), (ahead.exp() - behind.exp()) / (2 * tiny)),
        (
            losses.cross_entropy_tangent(log_probs, label, direction),
            (losses.cross_entropy(ahead, label) - losses.cross_entropy(behind, label)) / (2 * tiny),
        ),
    ):
        assert torch.allclose(found, expected, atol=1e-8)


def test_the_batch_prior_loss_has_the_hand_checked_value() -> None:
    uniform = torch.full((3,), 1 / 3, dtype=torch.float64)
    assert float(losses.batch_prior_loss(losses.log_mean_prediction(LOG_PROBS), uniform)) == pytest.approx(
        1.2475342178809616
    )
