"""A trained model from the folder of its run or export: model.json says how to build it, model.safetensors has the
weights."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from ..data.augmentation import Augment, EachImage
from ..data.batch import Inputs, call
from ..data.splits import Splits
from ..networks.build import factory_for
from ..networks.ensemble import Ensemble
from ..runtime import checksums
from ..runtime.files import regular
from ..runtime.seeds import seeded
from .finished import read_json, reading
from .new_inputs import NewInputs

WEIGHTS = "model.safetensors"
MOST_VALUES = 2**28  # of one input
MOST_MEMBERS = 100  # of an ensemble
FUNCTION = "function "  # before the name of a preparation step that is a function of the user, and not in the folder


class Model(nn.Module):
    """A trained network that takes inputs as the data provides them: preparing images is part of it. Returns logits.

    Several inputs are arguments, or one tuple or dict of them, as in the data.
    """

    def __init__(self, network: nn.Module, prepare: Augment, about: Mapping[str, Any]) -> None:
        super().__init__()
        self.network, self.prepare = network, prepare
        self.classes: tuple[str, ...] = tuple(about["classes"])
        self.about = dict(about)  # what model.json says
        self.new_inputs: NewInputs | None = None  # how to read inputs, of a model from a folder

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        inputs = kwargs or (args[0] if len(args) == 1 else args)
        return call(self.network, self.prepare.measuring(inputs))

    def example(self, count: int = 2) -> Inputs:
        """Made-up inputs of the right shape."""
        return _made_up(self.about["inputs"], count)


def load_model(
    folder: Path | str, network: str | nn.Module | Callable[[], nn.Module] | None = None, *, prepare: Any = None
) -> Model:
    """The model in a folder, ready to predict.

    Args:
        folder: of a finished run, or written by `mslg export --to safetensors`.
        network: for a network of your own, a module like it or a function that makes one. Not needed for a network that
            was chosen by name.
        prepare: how to prepare images, where functions of your own did it: words of `augment=` that do the same, or []
            for inputs that are already prepared.

    Returns:
        A module in evaluation mode that maps inputs to logits, (batch, classes), with the names in `.classes`.
    """
    path = Path(folder)
    if not (path / "model.safetensors").exists():
        raise FileNotFoundError(
            f"{path} has no model.safetensors; name the folder of a finished run (mslg fit -o {path} --resume finishes "
            "one) or of mslg export --to safetensors"
        )
    about = _described(path)
    with reading(path):
        steps = _preparation(path, about) if prepare is None else Augment.parse(prepare).prepared()
        model = Model(with_weights(_maker(path, about, network, steps), path), steps, about)
        model.new_inputs = NewInputs.read(path, about, steps)
    return model.eval()


def with_weights(network: nn.Module | Callable[[], nn.Module], folder: Path) -> nn.Module:
    """A network like the one given, with the weights in the folder."""
    about = _described(folder)

    def make() -> nn.Module:
        return copy.deepcopy(network) if isinstance(network, nn.Module) else network()

    members = 0 if isinstance(network, Ensemble) else about.get("members", 0)
    made = Ensemble([make() for _ in range(members)]) if members else make()
    checksums.check(folder, WEIGHTS)
    try:
        weights = load_file(regular(folder / WEIGHTS))
    except (SafetensorError, ValueError, OverflowError) as error:
        raise checksums.DamagedFile(f"{folder / WEIGHTS} is damaged ({error})") from error
    try:
        made.load_state_dict(weights)
    except RuntimeError as error:
        raise ValueError(
            f"the model of {folder} is a {about['network'].get('class', '?')}, and its weights do not fit a "
            f"{type(made).__name__} ({' '.join(str(error).split())[:200]})"
        ) from error
    return made


def named_network(folder: Path) -> str | None:
    """The network that a folder names, for a caller who trusts it to import code."""
    name = _described(folder)["network"].get("name")
    return None if name is None else str(name)


def describe_model(network: nn.Module, data: Splits, config: Mapping[str, Any]) -> dict[str, Any]:
    """The content of model.json: how to build the network, its classes, its inputs and how they are prepared."""
    with seeded(torch.device("cpu"), 0, "example"):  # a Dataset may change its items at random
        example = next(iter(data.source.store.batches([torch.zeros(1, dtype=torch.int64)])))
    steps = data.augment.prepared().steps
    found: dict[str, Any] = {
        "network": config["network"],
        **({"members": len(network)} if isinstance(network, Ensemble) else {}),
        "classes": list(data.source.classes),
        "inputs": _shapes(example),
        "prepare": [f"{FUNCTION * isinstance(step.function, EachImage)}{step.word}" for step in steps],
    }
    return found | NewInputs.of(data.source, data.augment, features_of(config)).describe()


def features_of(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """The backbone whose features a run was trained on; None if it was trained on the data itself."""
    table = config.get("data", {})
    if table.get("features") is None:
        return None
    keys = {"network": "features", "weights": "features_weights", "prepare": "features_prepare"}
    return {name: table[key] for name, key in keys.items() if table.get(key) is not None}


def _described(folder: Path) -> dict[str, Any]:
    """The content of model.json, of the types that it must have."""
    path = folder / "model.json"
    checksums.check(folder, path.name)
    about = read_json(path)
    expected = {"network": dict, "classes": list, "inputs": dict | list, "prepare": list, "members": int}
    for key, kind in expected.items():
        if key in ("network", "classes", "inputs") and key not in about:
            raise ValueError(f"{path} is damaged: it has no {key}")
        if key in about and not isinstance(about[key], kind):
            raise ValueError(f"{path} is damaged: {key} is {str(about[key])[:80]!r}")
    if not about["classes"] or not all(isinstance(name, str) for name in about["classes"]):
        raise ValueError(f"{path} is damaged: classes must be names, one or more")
    if not all(isinstance(word, str) for word in about.get("prepare", [])):
        raise ValueError(f"{path} is damaged: prepare must be words")
    if not 0 <= about.get("members", 0) <= MOST_MEMBERS:
        raise ValueError(f"{path} is damaged: {about['members']} members; at most {MOST_MEMBERS} are possible")
    try:
        _refuse_large(about["inputs"])
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    return about


def _refuse_large(shapes: Any, depth: int = 0) -> None:
    """Raise unless these are shapes of inputs, of a size that memory can hold."""
    if depth > 8:
        raise ValueError("inputs are nested too deeply")
    if isinstance(shapes, list):
        for part in shapes:
            _refuse_large(part, depth + 1)
        return
    if not isinstance(shapes, dict):
        raise ValueError(f"inputs hold {str(shapes)[:80]!r} instead of a shape")
    if not isinstance(shapes.get("shape"), list):
        for part in shapes.values():
            _refuse_large(part, depth + 1)
        return
    if not all(type(side) is int and side >= 0 for side in shapes["shape"]):
        raise ValueError(f"the shape {shapes['shape']} of the inputs is none")
    if math.prod(shapes["shape"]) > MOST_VALUES:
        raise ValueError(f"an input of shape {shapes['shape']} has more than {MOST_VALUES:,} values")
    if not isinstance(getattr(torch, str(shapes.get("dtype")), None), torch.dtype):
        raise ValueError(f"{shapes.get('dtype')!r} is no type of a tensor")


def _maker(path: Path, about: Mapping[str, Any], network: Any, prepare: Augment) -> nn.Module | Callable[[], nn.Module]:
    if network is not None and not isinstance(network, str):
        found: nn.Module | Callable[[], nn.Module] = network
        return found
    settings = dict(about["network"]) if network is None else {"name": network}
    if settings.get("name") is None:
        by = f" by {settings['made_by']}" if "made_by" in settings else ""
        raise ValueError(
            f"the network of {path} is a {settings.get('class', 'module')} that was made in Python{by}, and code named "
            "in a folder is not imported; pass network=: a module like it, a function that makes one, or its "
            f"{'name' if by else 'package.module:factory'} (--network)"
        )
    name, weights = settings.pop("name"), settings.pop("weights", None)  # all weights are in the folder
    for recorded in ("class", "made_by"):
        settings.pop(recorded, None)
    unfilled = Model(nn.Identity(), prepare, about)
    example, typed = prepare.measuring(unfilled.example()), network is not None  # code is imported only if typed
    factory = factory_for(name, example, len(about["classes"]), allow_import=typed, **settings)

    def make() -> nn.Module:
        made = factory()
        if weights is not None and hasattr(made, "transform_input"):
            made.transform_input = True  # type: ignore[assignment]  # as torchvision sets it with pretrained weights
        return made

    return make


def _preparation(path: Path, about: Mapping[str, Any]) -> Augment:
    words = about.get("prepare", [])
    functions = [word.removeprefix(FUNCTION) for word in words if word.startswith(FUNCTION)]
    if functions:
        raise ValueError(
            f"the images of {path} were prepared by functions that its folder cannot hold ({', '.join(functions)}); "
            "pass prepare=: words that do the same, such as ['normalise-imagenet'], or [] for prepared inputs"
        )
    return Augment.parse(words)


def _shapes(inputs: Inputs) -> Any:
    if isinstance(inputs, Tensor):
        return {"shape": list(inputs.shape[1:]), "dtype": str(inputs.dtype).removeprefix("torch.")}
    if isinstance(inputs, Mapping):
        return {name: _shapes(value) for name, value in inputs.items()}
    return [_shapes(value) for value in inputs]


def _made_up(shapes: Any, count: int) -> Inputs:
    if isinstance(shapes, list):
        return tuple(_made_up(part, count) for part in shapes)
    if not isinstance(shapes.get("shape"), list):
        return {name: _made_up(part, count) for name, part in shapes.items()}
    dtype = getattr(torch, shapes["dtype"])
    shape = (count, *shapes["shape"])
    if not dtype.is_floating_point:
        return torch.zeros(shape, dtype=dtype)  # a token that every vocabulary has
    return torch.rand(shape, generator=torch.Generator().manual_seed(0)).to(dtype)
