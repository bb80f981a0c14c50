"""Weights from a local file, never from a pickle that could run code."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from ..runtime.files import regular
from .head import linear_layers

log = logging.getLogger("mslg")

ENDINGS = (".safetensors", ".pt", ".pth", ".bin", ".ckpt")
WRAPPERS = ("state_dict", "model_state_dict", "model", "network")  # keys under which training scripts save weights


@dataclass(frozen=True)
class Weights:
    """Tensors by name, and the file they come from."""

    path: Path
    tensors: dict[str, Tensor]

    def load_into(self, network: nn.Module) -> None:
        """Set every tensor of the network. A head of another size keeps its initial weights; anything else must fit."""
        own = network.state_dict()
        layers = linear_layers(network)
        head = f"{layers[-1][0]}." if layers else "(none)"
        differ = {name for name in own if name in self.tensors and own[name].shape != self.tensors[name].shape}
        # Old checkpoints lack this counter, which does no harm.
        missing = {name for name in own if name not in self.tensors and not name.endswith("num_batches_tracked")}
        problems = []
        for kind, names in {"missing": missing, "of another shape": differ}.items():
            wrong = sorted(name for name in names if not name.startswith(head))
            if wrong:
                problems.append(f"{len(wrong)} tensors are {kind} ({', '.join(wrong[:3])}{', …' * (len(wrong) > 3)})")
        if problems:
            raise ValueError(
                f"{self.path} does not fit {type(network).__name__}: {'; '.join(problems)}; "
                "pass weights that were saved from this network"
            )
        if unused := sorted(set(self.tensors) - set(own)):
            log.warning(
                "%s has %d tensors that the network does not have, such as %s", self.path, len(unused), unused[0]
            )
        if differ or any(name.startswith(head) for name in missing):
            log.info("the head (%s) is new: the weights are for another number of classes", head.rstrip("."))
        fitting = {name: self.tensors[name] for name in own if name in self.tensors and name not in differ}
        network.load_state_dict(fitting, strict=False)


def is_file(weights: str, *, library: bool) -> bool:
    """Whether this is a local file rather than the name of a library's weights."""
    path = Path(weights)
    if path.is_file():
        return True
    if not library or path.suffix in ENDINGS or len(path.parts) > 1:
        raise FileNotFoundError(f"there is no file of weights {weights}; pass a .safetensors, .pt or .pth file")
    return False


def read_weights(path: str | Path) -> Weights:
    """Read a safetensors file, or a state dict saved by torch."""
    path = Path(path)
    try:
        if path.suffix == ".safetensors":
            return Weights(path, load_file(regular(path)))
        saved: Any = torch.load(regular(path), map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged or hostile file makes torch raise nearly anything
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(
            f"{path} is not a file of plain weights ({why}); whole pickled models are refused, as reading them would "
            "run code: save network.state_dict(), best with safetensors.torch.save_file"
        ) from error
    for wrapper in WRAPPERS:
        if isinstance(saved, dict) and isinstance(saved.get(wrapper), dict):
            saved = saved[wrapper]
    tensors = {str(name): value for name, value in dict(saved).items() if isinstance(value, Tensor)}
    if not tensors:
        raise ValueError(f"{path} contains no named tensors; save network.state_dict()")
    if all(name.startswith("module.") for name in tensors):  # as DataParallel saves them
        tensors = {name.removeprefix("module."): value for name, value in tensors.items()}
    return Weights(path, tensors)


def weights_hash(network: nn.Module, *, without: str) -> str:
    """A hash of every tensor except those of one layer."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(network.state_dict().items()):
        if not name.startswith(f"{without}."):
            digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
