"""Augmentation on batches: every step against a slow version, seeded, and only where it belongs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import mslg
from mslg.data.augmentation import Augment, centre, crop, flip, normalise, resize, vertical_flip
from mslg.data.make_splits import make_splits
from mslg.data.source import make_source
from mslg.data.splits import Splits
from mslg.runtime.seeds import generator
from tests.support.libraries import torchvision_or_skip

IMAGES = torch.rand(12, 3, 9, 7, generator=torch.Generator().manual_seed(0))


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(3)


@pytest.mark.parametrize(("function", "axis"), [(flip, 2), (vertical_flip, 1)])
def test_flips_mirror_each_image_by_a_coin_of_its_own(function: Any, axis: int) -> None:
    coins = torch.rand(12, generator=seeded()) < 0.5
    expected = torch.stack([image.flip(axis) if coin else image for image, coin in zip(IMAGES, coins, strict=True)])
    assert torch.equal(function(IMAGES, seeded()), expected)
    assert 0 < int(coins.sum()) < 12


@pytest.mark.parametrize("padding", [1, 4])
def test_a_crop_is_a_window_of_the_padded_image(padding: int) -> None:
    places = torch.randint(2 * padding + 1, (2, 12), generator=seeded())
    slow = []
    for image, top, left in zip(IMAGES, *places.tolist(), strict=True):
        padded = torch.zeros(3, 9 + 2 * padding, 7 + 2 * padding)
        padded[:, padding : padding + 9, padding : padding + 7] = image
        slow.append(padded[:, top : top + 9, left : left + 7])
    found = crop(IMAGES, seeded(), padding=padding)
    assert torch.equal(found, torch.stack(slow))
    assert found.is_contiguous()
    assert len({tuple(place) for place in places.T.tolist()}) > 3


def test_every_place_of_a_crop_is_as_likely_as_the_others() -> None:
    point = torch.zeros(9000, 1, 3, 3)
    point[:, :, 1, 1] = 1
    where = crop(point, seeded(), padding=1).flatten(1).argmax(1)
    assert torch.bincount(where, minlength=9).tolist() == pytest.approx([1000] * 9, abs=120)


def test_normalising_takes_one_number_or_one_a_channel() -> None:
    assert torch.allclose(normalise(IMAGES, (0.5,), (0.5,)), 2 * IMAGES - 1)
    mean, deviation = (0.1, 0.2, 0.3), (0.5, 0.6, 0.7)
    slow = torch.stack([(IMAGES[:, c] - mean[c]) / deviation[c] for c in range(3)], 1)
    assert torch.allclose(normalise(IMAGES, mean, deviation), slow)
    (step,) = Augment.parse("normalise-0.1,0.2,0.3/0.5,0.6,0.7").steps
    assert torch.allclose(step(IMAGES, None), slow)
    imagenet = Augment.parse(["normalise-imagenet"]).measuring(torch.full((1, 3, 2, 2), 0.485))
    assert float(imagenet[0, 0, 0, 0]) == pytest.approx(0.0, abs=1e-6)


def test_resizing_and_the_centre() -> None:
    assert resize(IMAGES, 14).shape == (12, 3, 18, 14)  # the shorter side
    assert resize(IMAGES, 20, 10).shape == (12, 3, 20, 10)
    assert resize(IMAGES, 7) is IMAGES
    halves = torch.tensor([0.0, 1.0]).repeat_interleave(4).expand(1, 1, 8, 8)
    assert torch.allclose(resize(halves, 2), torch.tensor([[0.125, 0.875]]).expand(1, 1, 2, 2), atol=0.05)
    assert torch.equal(centre(IMAGES, 5), IMAGES[:, :, 2:7, 1:6])
    assert Augment.parse("resize-10x16 centre-8").measuring(IMAGES).shape == (12, 3, 8, 8)


def test_grey_images_become_rgb() -> None:
    grey = IMAGES[:, :1]
    assert torch.equal(Augment.parse("rgb").measuring(grey), grey.repeat(1, 3, 1, 1))
    assert torch.equal(Augment.parse("rgb").measuring(IMAGES), IMAGES)


def test_words_are_done_in_order_and_random_ones_only_in_training() -> None:
    changes = Augment.parse(["flip", "vertical-flip", "crop-4", "normalise-0.5"])
    assert changes.words == ["flip", "vertical-flip", "crop-4", "normalise-0.5"]
    random = generator(5, "augment", 2, 7)
    slow = normalise(crop(vertical_flip(flip(IMAGES, random), random), random, padding=4), (0.5,), (0.5,))
    assert torch.equal(changes.training(IMAGES, 5, "augment", 2, 7), slow)
    assert not torch.equal(changes.training(IMAGES, 5, "augment", 2, 8), slow)
    assert torch.equal(changes.measuring(IMAGES), normalise(IMAGES, (0.5,), (0.5,)))
    assert float(slow.min()) == -1, "padding is black before normalising"


class RandomHalf:
    """Like a transform of torchvision: draws from the global generator, one decision a call."""

    def __call__(self, image: Tensor) -> Tensor:
        return image.flip(-1) if torch.rand(()) < 0.5 else image


class Normalize:
    def __call__(self, image: Tensor) -> Tensor:
        return image - 10


class Compose:
    def __init__(self, transforms: list[Any]) -> None:
        self.transforms = transforms

    def __call__(self, image: Tensor) -> Tensor:
        for transform in self.transforms:
            image = transform(image)
        return image


def test_foreign_transforms_decide_for_each_image_and_repeat_with_the_seed() -> None:
    changes = Augment.parse(Compose([RandomHalf(), Normalize()]))
    assert changes.words == ["RandomHalf", "Normalize"]
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = changes.training(IMAGES, 0, "augment", 1, 2)
    assert torch.equal(torch.get_rng_state(), before), "the global generator is left as it was"
    assert torch.equal(first, changes.training(IMAGES, 0, "augment", 1, 2))
    flipped = [torch.equal(new, old.flip(-1) - 10) for new, old in zip(first, IMAGES, strict=True)]
    kept = [torch.equal(new, old - 10) for new, old in zip(first, IMAGES, strict=True)]
    assert all(a != b for a, b in zip(flipped, kept, strict=True))
    assert 0 < sum(flipped) < 12
    assert torch.equal(changes.measuring(IMAGES), IMAGES - 10), "preparation is part of every measurement"


def test_torchvision_transforms_are_accepted() -> None:
    torchvision_or_skip()
    from torchvision.transforms import v2

    changes = Augment.parse(v2.Compose([v2.RandomHorizontalFlip(), v2.RandomCrop(7), v2.Normalize([0.5], [0.5])]))
    assert changes.words == ["RandomHorizontalFlip", "RandomCrop", "Normalize"]
    found = changes.training(IMAGES, 0, "augment", 0, 0)
    assert found.shape == (12, 3, 7, 7)
    assert torch.equal(found, changes.training(IMAGES, 0, "augment", 0, 0))
    assert torch.allclose(changes.measuring(IMAGES), 2 * IMAGES - 1)


def images(count: int = 40, channels: int = 1) -> Splits:
    random = np.random.default_rng(0)
    noisy = make_source(random.random((count, channels, 8, 8), dtype=np.float32), np.arange(count) % 2)
    clean = make_source(random.random((10, channels, 8, 8), dtype=np.float32), np.arange(10) % 2)
    return make_splits(
        noisy, clean, batch_size=8, clean_batch_size=4, augment=Augment.parse("flip crop-2 normalise-0.5")
    )


def test_training_batches_are_changed_at_random_and_others_only_prepared() -> None:
    data = images()
    plain = Splits(**{**vars(data), "augment": Augment.parse("normalise-0.5")})
    for changed, same in zip(data.in_order(), plain.in_order(), strict=True):
        assert torch.equal(changed.inputs, same.inputs)
    for one, other in zip(data.batches(1), plain.batches(1), strict=True):
        assert torch.equal(one.index, other.index)
        assert not torch.equal(one.inputs, other.inputs)
    assert torch.equal(next(data.clean_batches(0)).inputs, next(plain.clean_batches(0)).inputs)
    assert float(next(data.clean_batches(0)).inputs.min()) < -0.5
    also = Splits(**{**vars(data), "augment_clean": True})
    assert not torch.equal(next(also.clean_batches(0)).inputs, next(plain.clean_batches(0)).inputs)


def test_augmented_batches_can_start_anywhere() -> None:
    data = Splits(**{**vars(images()), "augment_clean": True})
    seen = [batch.inputs for batch in data.batches(3)]
    again = [batch.inputs for batch in data.batches(3, start=2)]
    assert all(map(torch.equal, again, seen[2:]))
    stream, later = data.clean_batches(3), data.clean_batches(3, start=3)
    clean = [next(stream).inputs for _ in range(5)]
    assert all(torch.equal(next(later).inputs, batch) for batch in clean[3:])


class Small(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 2))


def test_an_augmented_run_goes_on_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(1)
    noisy = (random.random((48, 1, 8, 8), dtype=np.float32), np.arange(48) % 2)
    clean = (random.random((8, 1, 8, 8), dtype=np.float32), np.arange(8) % 2)
    settings: dict[str, Any] = {
        "method": "mslg",
        "epochs": 3,
        "batch_size": 8,
        "progress": False,
        "checkpoint_minutes": 0.0,
        "augment": ["flip", "crop-1", "normalise-0.5"],
        "augment_clean": True,
    }
    whole = mslg.fit(Small, noisy, clean, output=tmp_path / "whole", **settings)
    calls = 0
    step = mslg.MSLG.step

    def interrupted(self: Any, *words: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 10:
            raise KeyboardInterrupt
        return step(self, *words)

    monkeypatch.setattr(mslg.MSLG, "step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        mslg.fit(Small, noisy, clean, output=tmp_path / "part", **settings)
    monkeypatch.undo()
    resumed = mslg.fit(Small, noisy, clean, output=tmp_path / "part", resume=True, **settings)
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name])
    assert (tmp_path / "whole/metrics.jsonl").read_bytes() == (tmp_path / "part/metrics.jsonl").read_bytes()
    with pytest.raises(ValueError, match=r"started with train\.augment = "):
        mslg.fit(Small, noisy, clean, output=tmp_path / "part", resume=True, **{**settings, "augment": None})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["flipp"], "unknown augmentation 'flipp'. Did you mean 'flip'"),
        (["crop"], "unknown augmentation 'crop'. Did you mean 'crop-4'"),
        (["crop-0"], "unknown augmentation 'crop-0'"),
        (["normalise-0"], "unknown augmentation 'normalise-0'"),
        (["resize-0x3"], "unknown augmentation 'resize-0x3'"),
        ([3], "3 is no augmentation; pass words"),
    ],
)
def test_an_unknown_word_is_named(words: list[Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        Augment.parse(words)


@pytest.mark.parametrize(
    ("words", "inputs", "message"),
    [
        ("flip", torch.rand(4, 5), r"is for images .* these inputs are \(4, 5\) of torch.float32: remove"),
        ("flip", {"left": torch.rand(4, 5)}, "these inputs are dict"),
        ("centre-9", torch.rand(2, 3, 8, 8), "images of 8×8 are too small for a central 9×9; put resize-9 before it"),
        ("normalise-imagenet", torch.rand(2, 1, 8, 8), '3 means, the images 1 channels; put "rgb" before it'),
        ("rgb", torch.rand(2, 4, 8, 8), "images of 4 channels cannot be converted to RGB"),
    ],
)
def test_a_step_that_does_not_fit_the_images_says_so(words: str, inputs: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Augment.parse(words).training(inputs, 0, "augment", 0, 0)


def test_a_transform_to_different_sizes_is_refused() -> None:
    sizes = iter(range(1, 99))
    changes = Augment.parse([lambda image: image[:, : next(sizes)]])
    with pytest.raises(ValueError, match=r"returned images of different kinds .* end with a resize or a crop"):
        changes.training(IMAGES, 0, "augment", 0, 0)


def test_augmenting_costs_little_beside_a_training_step() -> None:
    changes = Augment.parse("flip vertical-flip crop-4 normalise-0.5")
    batch = torch.rand(128, 3, 32, 32)
    taken = []
    for step in range(8):
        begun = time.process_time()
        changes.training(batch, 0, "augment", 0, step)
        taken.append(time.process_time() - begun)
    assert min(taken) < 0.05  # the 8-layer network needs about half a second for such a batch
