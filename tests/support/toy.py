"""A problem small enough to be differentiated by brute force: a tiny network in double precision, two batches."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from mslg.data.batch import Batch
from mslg.training.method import Method, Task

CLASSES = 3


def _drawn() -> dict[str, Any]:
    """The numbers for which the weights and gradients in the tests have been worked out in numpy."""
    random = np.random.default_rng(0)
    flat = random.normal(size=31) * 0.7
    first, first_bias, second, second_bias = np.split(flat, [12, 16, 28])
    return {
        "weights": [first.reshape(3, 4).T, first_bias, second.reshape(4, CLASSES).T, second_bias],
        "noisy": random.normal(size=(4, 3)),
        "clean": random.normal(size=(5, 3)),
        "given": random.integers(0, CLASSES, 4),
        "verified": random.integers(0, CLASSES, 5),
        "label_logits": random.normal(size=(4, CLASSES)) * 1.5,
        "sample_weights": random.uniform(0.2, 1, 4),
    }


def network() -> nn.Module:
    """3 → 4 → 3 with tanh between."""
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, CLASSES)).double()
    for parameter, values in zip(net.parameters(), _drawn()["weights"], strict=True):
        parameter.data = torch.as_tensor(values).contiguous()
    return net


def normalised_network() -> nn.Module:
    """With batch norm, which makes every prediction depend on the whole batch."""
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, CLASSES)).double()


def dropout_network() -> nn.Module:
    torch.manual_seed(6)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Dropout(0.4), nn.Linear(8, CLASSES)).double()


def noisy_batch() -> Batch:
    drawn = _drawn()
    return Batch(torch.arange(4), torch.as_tensor(drawn["noisy"]), torch.as_tensor(drawn["given"]))


def clean_batch() -> Batch:
    drawn = _drawn()
    return Batch(torch.arange(5), torch.as_tensor(drawn["clean"]), torch.as_tensor(drawn["verified"]))


def label_logits() -> Tensor:
    return torch.as_tensor(_drawn()["label_logits"])


def sample_weights() -> Tensor:
    return torch.as_tensor(_drawn()["sample_weights"])


def task(build: Callable[[], nn.Module] = network, *, rate: float = 0.1, epochs: int = 12, **settings: Any) -> Task:
    """Plain descent on the four samples."""

    def descent(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=rate)

    return Task(noisy_batch().label, CLASSES, build, epochs, 4, **{"optimizer": descent, **settings})


def endless(batch: Batch) -> Iterator[Batch]:
    return itertools.repeat(batch)


def go_to(method: Method, epoch: int, within: float = 0.0) -> None:
    """As the loop does before a step, `within` an epoch."""
    method.set_progress(epoch, (epoch + within) / method.task.epochs)


def weights_of(net: nn.Module) -> list[Tensor]:
    """A copy of the parameters."""
    return [parameter.detach().clone() for parameter in net.parameters()]


def at_weights(net: nn.Module, weights: Sequence[Tensor], inputs: Tensor) -> Tensor:
    """The logits with other parameters; no buffer is touched."""
    buffers = {name: buffer.clone() for name, buffer in net.named_buffers()}
    names = [name for name, _ in net.named_parameters()]
    logits: Tensor = functional_call(net, (dict(zip(names, weights, strict=True)), buffers), (inputs,))
    return logits


def differences(function: Callable[[], Tensor], tensors: Sequence[Tensor], step: float = 1e-6) -> list[Tensor]:
    """The gradient of the function with respect to the tensors it reads, by central differences, entry by entry."""
    gradients = []
    for tensor in tensors:
        slopes = torch.zeros_like(tensor).flatten()
        flat = tensor.data.view(-1)
        for place in range(len(flat)):
            before = float(flat[place])
            values = []
            for sign in (1, -1):
                flat[place] = before + sign * step
                values.append(float(function()))
            flat[place] = before
            slopes[place] = (values[0] - values[1]) / (2 * step)
        gradients.append(slopes.view(tensor.shape))
    return gradients


def noted_gradients(parameters: Iterable[Tensor]) -> list[Tensor]:
    """The gradients of the next backward pass, in the order of the parameters: they are freed after a step."""
    watched = list(parameters)
    found = [torch.empty(0)] * len(watched)

    def note(place: int) -> Callable[[Tensor], None]:
        def hook(parameter: Tensor) -> None:
            assert parameter.grad is not None
            found[place] = parameter.grad.clone()

        return hook

    for place, parameter in enumerate(watched):
        parameter.register_post_accumulate_grad_hook(note(place))
    return found


def close(found: Sequence[Tensor], expected: Sequence[Tensor], tolerance: float = 1e-9) -> bool:
    return all(torch.allclose(a, b, rtol=1e-6, atol=tolerance) for a, b in zip(found, expected, strict=True))
