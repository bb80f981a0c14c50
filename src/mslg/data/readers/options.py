"""How the inputs of a data set are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...registry import expect_name
from ..images import Frame
from ..texts import WORDS, Vocabulary

CORRUPT = ("error", "skip", "keep")  # "keep" is for `mslg check`, which decodes every file itself


@dataclass(frozen=True)
class Reading:
    """How inputs are read.

    Args:
        size: the side of square images in pixels. By default images of one common size keep it, and others become
            224 × 224.
        channels: 1 (greyscale) or 3 (RGB).
        corrupt: what to do about unreadable image files: "error", "skip" or "keep".
        workers: processes that decode images; by default one per processor, at most 4.
        frame: the frame of another set, to get images of the same shape.
        words: the size of the vocabulary, for texts.
        vocabulary: the vocabulary of another set, to get the same encoding.
        columns: what a manifest calls its columns: {"label": "species"}.
    """

    size: int | None = None
    channels: int = 3
    corrupt: str = "error"
    workers: int | None = None
    frame: Frame | None = None
    words: int = WORDS
    vocabulary: Vocabulary | None = None
    columns: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        expect_name("value of corrupt", self.corrupt, CORRUPT)
        if self.channels not in (1, 3):
            raise ValueError(f"channels is {self.channels}; images are read with 1 channel (greyscale) or 3 (RGB)")
        if self.size is not None and self.size < 1:
            raise ValueError(f"size is {self.size}; the side of the images must be at least 1 pixel")
        if self.workers is not None and self.workers < 0:
            raise ValueError(f"workers is {self.workers}; it must be 0 (decode in this process) or more")
