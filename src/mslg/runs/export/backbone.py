"""A model that was trained on frozen features, with its backbone in front: pictures in, logits out, in one graph."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor, nn

from ...data.augmentation import Augment
from ...data.batch import call
from ...data.source import Positions, Source
from ...data.stores import TensorStore
from ...networks.evaluating import evaluating
from ...networks.features import backbone
from ...networks.head import find_head, recorded_inputs
from ..load_model import Model

log = logging.getLogger("mslg")


def with_backbone(model: Model) -> Model:
    """The model of pictures where it is one of features; the model itself where it is not, or its backbone is not at
    hand."""
    features, new = model.about.get("features_of"), model.new_inputs
    if features is None:
        return model
    try:
        if new is None or new.frame is None:
            raise ValueError("its inputs are not image files")
        shape = [new.channels, new.frame.height, new.frame.width]
        pictures = torch.rand((2, *shape), generator=torch.Generator().manual_seed(0))
        encoder = _encoder(features, pictures, model.classes)
    except (ImportError, ValueError, OSError) as error:
        log.warning("the model takes features of %s, which is not part of the export: %s", features["network"], error)
        return model
    about = {**model.about, "inputs": {"shape": shape, "dtype": "float32"}, "features_of": None}
    prepare = Augment.parse(features.get("prepare"))
    return Model(nn.Sequential(encoder, nn.Flatten(), model), prepare, about | {"backbone": features}).eval()


def _encoder(features: dict[str, Any], pictures: Tensor, classes: tuple[str, ...]) -> nn.Module:
    """The backbone without its head, compared on pictures with what goes into the head."""
    prepare = Augment.parse(features.get("prepare"))
    count = len(pictures)
    source = Source(TensorStore(pictures), torch.zeros(count, dtype=torch.int64), classes, Positions(count))
    network = backbone(
        features["network"], source, prepare=prepare, weights=features.get("weights"), allow_import=False
    ).eval()
    name, head = find_head(network)
    prepared = prepare.measuring(pictures)
    with evaluating(network), recorded_inputs(head) as recorded:
        call(network, prepared)
        wanted = recorded[0].flatten(1)
    parent, _, attribute = name.rpartition(".")
    setattr(network.get_submodule(parent), attribute, nn.Identity())
    with evaluating(network):
        found = call(network, prepared).flatten(1)
    if found.shape != wanted.shape or not torch.allclose(found, wanted):
        raise ValueError("something follows the head of this network")
    return network.eval()
