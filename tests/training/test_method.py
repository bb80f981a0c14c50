"""What the author of a method writes: the example in the docstring is a whole method."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest
import torch
from torch import Tensor

from mslg.data.batch import Batch
from mslg.training import method as author
from mslg.training.losses import cross_entropy
from mslg.training.method import Method, StepResult
from tests.support.method_problems import accuracy, check_resume, check_step, no_clean, problem, run


def example() -> type[Method]:
    """The class in the module's docstring."""
    _, _, text = (author.__doc__ or "").partition("A complete method:\n")
    code, _, _ = text.partition("\nA method with several networks")
    names: dict[str, Any] = {**vars(author), "cross_entropy": cross_entropy}
    exec(textwrap.dedent(code), names)
    made: type[Method] = names["SmoothedLabels"]
    return made


def test_the_example_is_a_method() -> None:
    made = example()
    task, data = problem()
    method = made(task)
    metrics = run(method, data)
    assert {"train/loss", "given/loss"} <= set(metrics[-1])
    assert accuracy(method) > 0.7
    check_step(method, data)
    check_resume(lambda: (lambda task, data: (made(task), data))(*problem()), stop=11)
    with pytest.raises(ValueError, match="smoothing is 1; it must be at least 0 and below 1"):
        made(task, smoothing=1)  # type: ignore[call-arg]


def test_a_result_has_no_graph() -> None:
    loss = torch.ones(2, 3, requires_grad=True).log_softmax(1)
    result = StepResult({"loss": loss.mean()}, loss)
    assert not result.log_probs.requires_grad
    assert not result.scalars["loss"].requires_grad


class TwoOfThem(Method):
    """Two networks by plain cross entropy, with nothing written but the constructor and the step."""

    def __init__(self, task: author.Task) -> None:
        super().__init__(task)
        self.network, self.second = task.new_network(), task.new_network()
        for name, network in self.named_children():
            self.add_optimizer(name, network)

    def step(self, batch: Batch, clean: Any) -> StepResult:
        losses: list[Tensor] = []
        for network, optimizer in self.trainable_networks():
            loss, log_probs = self.fit_labels(network, optimizer, batch)
            losses.append(loss)
        return StepResult({"loss": losses[0], "second/loss": losses[1]}, log_probs)


def test_networks_with_an_optimizer_are_trained_on_reviewed_samples_and_saved() -> None:
    task, data = problem()
    method = TwoOfThem(task)
    batch = next(data.batches(0))
    heads = [task.head(network).weight for network in (method.network, method.second)]
    before = [weight.clone() for weight in heads]
    assert method.train_on_reviewed(batch) is not None
    assert not any(torch.equal(now, then) for now, then in zip(heads, before, strict=True))
    method.step(batch, no_clean())
    assert method.deployed() is method.network
    assert set(method.get_extra_state()["optimizers"]) == {"network", "second"}
    check_resume(lambda: (lambda task, data: (TwoOfThem(task), data))(*problem()), stop=11)
