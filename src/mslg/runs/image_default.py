"""What a run does with image files when neither a network nor features were asked for.

Without a GPU, a head on the frozen features of a pretrained backbone: minutes instead of hours, and better than a
network trained from nothing on noisy labels. With a GPU the same backbone is fine-tuned. Where no backbone is
installed, a small network on small pictures.
"""

from __future__ import annotations

import logging
from dataclasses import replace

import torch

from ..data.image_stores import ImageStore, MemoryImages
from ..data.source import Source
from ..networks.packaged import INSTALL, packaged_backbone, packaged_side
from .settings import Named, Settings

log = logging.getLogger("mslg")

NONE = "none"  # --features none: train on pixels
SMALL, SMALL_SIDE, SMALL_EPOCHS = Named("cnn8", arguments={"width": 16}), 48, 12
# A head on features of many columns memorises less with both. On tuning seeds of benchmarks/practitioner.py, human
# labels without clean samples, a decay of 1e-2 has average precisions of .55 and .54, 1e-3 .53 and .53, 3e-2 .54 and
# .53; more dropout (.7), 512 hidden units or none at all are worse.
HEAD, HEAD_DECAY = Named("mlp", arguments={"dropout": 0.5}), 1e-2
FINE_TUNING_RATE, FINE_TUNING_EPOCHS = 0.01, 12


def with_image_default(settings: Settings, source: Source, device: str) -> Settings:
    """The settings with a network, or features, chosen for image files; unchanged if either was asked for."""
    data, train, network = settings.data, settings.train, settings.network
    asked = network != Named() or data.features not in (None, NONE) or train.augment is not None
    pixels = replace(settings, data=replace(data, features=None)) if data.features == NONE else settings
    if asked or train.from_run is not None or not isinstance(source.store, ImageStore | MemoryImages):
        return pixels
    frame = source.store.frame
    if min(frame.height, frame.width) < 16:  # the network for such images is a perceptron, and fast
        return pixels
    found = None if data.features == NONE else packaged_backbone()
    if found is not None and not _has_gpu(device):
        decay = max(train.weight_decay, HEAD_DECAY)
        return replace(
            settings, data=replace(data, features=found), network=HEAD, train=replace(train, weight_decay=decay)
        )
    if found is not None:
        side = packaged_side(min(frame.height, frame.width))
        return replace(
            settings,
            network=Named(found, arguments={"weights": "DEFAULT"}),
            train=replace(
                train,
                augment=["flip", f"resize-{side}", f"centre-{side}", "normalise-0.5"],
                learning_rate=min(train.learning_rate, FINE_TUNING_RATE),
                epochs=train.epochs or FINE_TUNING_EPOCHS,
            ),
        )
    if data.features is None:
        log.warning(
            "no pretrained backbone is installed, so a small network is trained on %d-pixel pictures; its list will be "
            "much worse than that of a pretrained one: %s",
            SMALL_SIDE,
            INSTALL,
        )
    small = min(frame.height, frame.width) <= SMALL_SIDE or data.size is not None
    return replace(
        settings,
        data=replace(data, features=None, size=data.size if small else SMALL_SIDE),
        network=SMALL,
        train=replace(train, epochs=train.epochs or SMALL_EPOCHS),
    )


def _has_gpu(device: str) -> bool:
    return device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
