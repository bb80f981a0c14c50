"""Mixup against its formula."""

from __future__ import annotations

import torch

from mslg.training.mixup import mixed, neighbours


def test_mixed_rows_are_the_formula_to_the_bit() -> None:
    random = torch.Generator().manual_seed(0)
    inputs = torch.randn(9, 4, generator=random, requires_grad=True)
    target = torch.randn(9, 3, generator=random).softmax(1)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        other = torch.cat([torch.randperm(6), 6 + torch.randperm(3)])
        torch.manual_seed(5)
        found = mixed(inputs, target, other)
        torch.manual_seed(5)
        share = torch.rand(())
        share = torch.maximum(share, 1 - share)
    for rows, original in zip(found, (inputs, target), strict=True):
        assert torch.equal(rows, share * original + (1 - share) * original[other])
    found[0].sum().backward()  # in place, and still differentiable
    assert inputs.grad is not None


def test_partners_are_of_the_same_part() -> None:
    other = neighbours((6, 3))
    assert sorted(other[:6].tolist()) == list(range(6))
    assert sorted(other[6:].tolist()) == [6, 7, 8]
    assert not bool((other == torch.arange(9)).any())  # nobody is mixed with itself
