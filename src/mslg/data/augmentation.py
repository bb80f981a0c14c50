"""Image transforms between the data and the network: random augmentation, and preparation.

Steps are written as words, in the order in which they are applied:

    flip  vertical-flip     each image mirrored with probability one half
    crop-4                  padded by 4 black pixels on every side, then cropped back to its size at a random position
    resize-256              shorter side to 256;  resize-256x256 (height x width): both sides
    centre-224              the central 224 x 224 pixels
    rgb                     grey images repeated over three channels
    normalise-0.5           (x − 0.5)/0.5;  normalise-imagenet;  normalise-0.4,0.5,0.6/0.2,0.2,0.3 (means/deviations)

Random steps apply to training batches only; the others prepare every batch, in training and evaluation. A function from
tensor to tensor, such as a torchvision v2 transform, may be used as a step too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ..registry import unknown
from ..runtime.seeds import derive, generator, seeded

WORDS = ("flip", "vertical-flip", "crop-4", "resize-256", "resize-256x256", "centre-224", "rgb", "normalise-0.5")
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
# Deterministic transforms of other libraries; all others are assumed to be random.
PREPARING = {"Normalize", "Resize", "CenterCrop", "ToDtype", "ConvertImageDtype", "Grayscale", "RGB", "Pad", "Identity"}


def flip(images: Tensor, random: torch.Generator) -> Tensor:
    """Each image mirrored left to right with probability one half."""
    return torch.where(_coin_flips(images, random), images.flip(3), images)


def vertical_flip(images: Tensor, random: torch.Generator) -> Tensor:
    """Each image flipped upside down with probability one half."""
    return torch.where(_coin_flips(images, random), images.flip(2), images)


def crop(images: Tensor, random: torch.Generator, *, padding: int) -> Tensor:
    """Each image padded with zeros and cropped back to its size at a random position."""
    count, _, height, width = images.shape
    offsets = torch.randint(2 * padding + 1, (2, count), generator=random).to(images.device)
    padded = functional.pad(images, (padding,) * 4)
    rows = offsets[0, :, None] + torch.arange(height, device=images.device)  # (batch, height)
    columns = offsets[1, :, None] + torch.arange(width, device=images.device)  # (batch, width)
    which = torch.arange(count, device=images.device)[:, None, None]
    # With channels last, so that one lookup takes all channels of a pixel.
    cropped = padded.permute(0, 2, 3, 1)[which, rows[:, :, None], columns[:, None, :]]
    return cropped.permute(0, 3, 1, 2).contiguous()


def normalise(images: Tensor, mean: tuple[float, ...], deviation: tuple[float, ...]) -> Tensor:
    """(x − mean)/deviation, with one number for all channels or one per channel."""
    for name, values in {"means": mean, "deviations": deviation}.items():
        if len(values) not in (1, images.shape[1]):
            hint = 'put "rgb" before it' if images.shape[1] == 1 else "pass one number, or one per channel"
            raise ValueError(f"normalise has {len(values)} {name}, the images {images.shape[1]} channels; {hint}")
    shape = (1, -1, 1, 1)
    return (images - images.new_tensor(mean).view(shape)) / images.new_tensor(deviation).view(shape)


def resize(images: Tensor, height: int, width: int | None = None) -> Tensor:
    """To height × width; with one number, the shorter side to it and the other side in proportion."""
    if width is None:
        short = min(images.shape[2:])
        height, width = (int(height * side / short) for side in images.shape[2:])
    if images.shape[2:] == (height, width):
        return images
    return functional.interpolate(images, (height, width), mode="bilinear", antialias=True)


def centre(images: Tensor, size: int) -> Tensor:
    """The central size × size pixels."""
    height, width = images.shape[2:]
    if min(height, width) < size:
        raise ValueError(
            f"images of {height}×{width} are too small for a central {size}×{size}; put resize-{size} before it"
        )
    top, left = round((height - size) / 2), round((width - size) / 2)
    return images[:, :, top : top + size, left : left + size]


def rgb(images: Tensor) -> Tensor:
    """Greyscale images as three equal channels; images with three channels unchanged."""
    if images.shape[1] not in (1, 3):
        raise ValueError(f"images of {images.shape[1]} channels cannot be converted to RGB; they need 1 or 3 channels")
    return images.expand(-1, 3, -1, -1)


@dataclass(frozen=True)
class Step:
    """One step: its word, its function, and whether it is random."""

    word: str
    function: Callable[..., Tensor]
    random: bool

    def __call__(self, images: Tensor, random: torch.Generator | None) -> Tensor:
        return self.function(images, random) if self.random else self.function(images)


@dataclass(frozen=True)
class Augment:
    """A sequence of steps. `training` applies all of them, `measuring` only those that are not random."""

    steps: tuple[Step, ...] = ()

    @classmethod
    def parse(cls, words: Augment | str | Callable[..., Any] | Sequence[Any] | None) -> Augment:
        """From words and functions; a string may contain several words, separated by spaces or plus signs."""
        if isinstance(words, Augment):
            return words
        if words is None:
            return cls()
        if isinstance(words, str):
            words = re.split(r"[\s+]+", words.strip()) if words.strip() else []
        return cls(tuple(_step(word) for word in _unrolled(words)))

    @property
    def words(self) -> list[str]:
        """The words of the steps; for a function, its name or that of its class."""
        return [step.word for step in self.steps]

    def identity(self) -> list[str]:
        """The words, and the repr of functions: two of the same name may have different arguments."""
        return [
            f"{step.word} {step.function!r}" if isinstance(step.function, EachImage) else step.word
            for step in self.steps
        ]

    @property
    def random(self) -> bool:
        """Whether any step is random."""
        return any(step.random for step in self.steps)

    def prepared(self) -> Augment:
        """The steps that are not random."""
        return Augment(tuple(step for step in self.steps if not step.random))

    def training(self, inputs: Any, seed: int, purpose: str, *position: int) -> Any:
        """A training batch, augmented as a function of the seed and the position."""
        if not self.steps:
            return inputs
        images, random = _images(inputs, self.words), generator(seed, purpose, *position)
        if not any(isinstance(step.function, EachImage) for step in self.steps):
            return self._apply(images, random)
        with seeded(images.device, derive(seed, purpose), purpose, *position):  # functions use the global generator
            return self._apply(images, random)

    def measuring(self, inputs: Any) -> Any:
        """A batch for evaluation, without random steps."""
        steps = self.prepared()
        return steps._apply(_images(inputs, steps.words), None) if steps.steps else inputs

    def _apply(self, images: Tensor, random: torch.Generator | None) -> Tensor:
        for step in self.steps:
            images = step(images, random)
        return images


UNCHANGED = Augment()


@dataclass(frozen=True)
class EachImage:
    """A function applied image by image: on a whole batch, a random transform would treat all images alike."""

    function: Callable[[Tensor], Tensor]

    def __call__(self, images: Tensor, random: torch.Generator | None = None) -> Tensor:
        changed = [self.function(image) for image in images]
        if not all(isinstance(image, Tensor) and image.shape == changed[0].shape for image in changed):
            kinds = {str(tuple(getattr(image, "shape", ()))) or type(image).__name__ for image in changed}
            raise ValueError(
                f"the transform {_name(self.function)} returned images of different kinds ({', '.join(sorted(kinds))})"
                "; a batch needs tensors of one shape: end with a resize or a crop to a fixed size"
            )
        return torch.stack([image.as_subclass(Tensor) for image in changed])


def _unrolled(words: Any) -> Iterator[Any]:
    """Words and functions as a flat sequence. A composition such as `v2.Compose` is unrolled, so that only its random
    parts are left out of evaluation; a random choice among transforms is not."""
    if type(words).__name__ == "Compose" and hasattr(words, "transforms"):
        words = words.transforms
    if isinstance(words, list | tuple):
        for word in words:
            yield from _unrolled(word)
    else:
        yield words


def _step(word: Any) -> Step:
    if not isinstance(word, str):
        if not callable(word):
            raise TypeError(f"{word!r} is no augmentation; pass words ({', '.join(WORDS)}) or functions of a tensor")
        name = _name(word)
        return Step(name, EachImage(word), name not in PREPARING)
    name, _, argument = word.partition("-") if word != "vertical-flip" else (word, "", "")
    if word in ("flip", "vertical-flip"):
        return Step(word, flip if word == "flip" else vertical_flip, random=True)
    if word == "rgb":
        return Step(word, rgb, random=False)
    if name == "crop" and argument.isdigit() and int(argument):
        padding = int(argument)
        return Step(word, lambda images, random: crop(images, random, padding=padding), random=True)
    if name == "centre" and argument.isdigit() and int(argument):
        size = int(argument)
        return Step(word, lambda images: centre(images, size), random=False)
    if name == "resize" and (match := re.fullmatch(r"([1-9]\d*)(?:x([1-9]\d*))?", argument)):
        height, width = int(match[1]), int(match[2]) if match[2] else None
        return Step(word, lambda images: resize(images, height, width), random=False)
    if name == "normalise" and (numbers := _normalisation(argument)):
        mean, deviation = numbers
        return Step(word, lambda images: normalise(images, mean, deviation), random=False)
    raise unknown("augmentation", word, [*WORDS, "normalise-imagenet", "normalise-0.4,0.5,0.6/0.2,0.2,0.3"])


def _normalisation(argument: str) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    if argument == "imagenet":
        return IMAGENET
    left, mark, right = argument.partition("/")
    try:
        mean = tuple(float(number) for number in left.split(","))
        deviation = tuple(float(number) for number in right.split(",")) if mark else mean
    except ValueError:
        return None
    return (mean, deviation) if all(number > 0 for number in deviation) else None


def _images(inputs: Any, words: list[str]) -> Tensor:
    if isinstance(inputs, Tensor) and inputs.dim() == 4 and inputs.is_floating_point():
        return inputs
    actual = f"{tuple(inputs.shape)} of {inputs.dtype}" if isinstance(inputs, Tensor) else type(inputs).__name__
    raise ValueError(
        f"the augmentation {' '.join(words)} is for images as floats of shape (batch, channels, height, width); these "
        f"inputs are {actual}: remove the augmentation, or apply it in your Dataset"
    )


def _coin_flips(images: Tensor, random: torch.Generator) -> Tensor:
    return (torch.rand(len(images), generator=random) < 0.5).to(images.device)[:, None, None, None]


def _name(function: Any) -> str:
    return getattr(function, "__name__", type(function).__name__)
