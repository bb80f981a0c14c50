"""Randomness is a function of where we are, and leaves no mark."""

from __future__ import annotations

import pytest
import torch

from mslg.runtime.seeds import derive, generator, numpy_generator, seeded

CPU = torch.device("cpu")


def test_a_seeded_block_draws_what_the_global_seed_would_give() -> None:
    torch.manual_seed(derive(5, "step", 2, 3))
    expected = torch.rand(4), torch.randn(3), torch.randperm(9)
    with seeded(CPU, 5, "step", 2, 3):
        found = torch.rand(4), torch.randn(3), torch.randperm(9)
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)


def test_the_global_generator_goes_on_as_if_nothing_had_been_drawn() -> None:
    torch.manual_seed(11)
    expected = torch.rand(6)
    torch.manual_seed(11)
    first = torch.rand(2)
    with seeded(CPU, 0, "elsewhere"):
        torch.rand(100)
    with pytest.raises(RuntimeError), seeded(CPU, 0, "elsewhere"):
        torch.rand(7) @ torch.rand(8)
    assert torch.equal(torch.cat([first, torch.rand(4)]), expected)


def test_every_purpose_and_position_has_numbers_of_its_own() -> None:
    places = [(0, "a", 0, 0), (1, "a", 0, 0), (0, "b", 0, 0), (0, "a", 0, 1), (0, "a", 1, 0), (0, "a", 1, 1)]
    assert len({derive(*place) for place in places}) == len(places)
    assert derive(0, "a", 1) == derive(0, "a", 1)
    assert torch.equal(torch.rand(3, generator=generator(0, "a", 1)), torch.rand(3, generator=generator(0, "a", 1)))
    assert (numpy_generator(0, "a").random(3) == numpy_generator(0, "a").random(3)).all()
