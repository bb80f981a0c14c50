"""Networks of torchvision and timm, and those whose weights come in a package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any
from urllib.error import URLError

from torch import nn

from .head import fit_head
from .packaged import WEIGHTS, packaged_network

EXTRAS = {"torchvision": "vision", "timm": "timm"}

# Arguments of timm.create_model that name files to unpickle or to fetch. Weights are read by `networks.weights` alone.
NOT_SETTINGS = {"pretrained", "checkpoint_path", "pretrained_cfg", "pretrained_cfg_overlay", "cache_dir"}

Maker = Callable[[], nn.Module]


def imported(library: str) -> Any:
    """The library. One that fails at import, as builds for another torch do, is as good as not installed."""
    try:
        return import_module(library)
    except Exception as error:
        # Not only ImportError: torchvision raises a RuntimeError when its operators do not match this torch.
        missing = isinstance(error, ModuleNotFoundError) and error.name == library
        why = "is not installed" if missing else f"is installed but does not work ({error})"
        raise ImportError(
            f"{library} {why}; install a build for your torch with: pip install 'mslg[{EXTRAS[library]}]', "
            "or take one of `mslg list networks`"
        ) from error


def from_torchvision(
    name: str, classes: int, channels: int | None, weights: str | None, settings: Mapping[str, Any]
) -> Maker:
    """A classification network of torchvision with a head for these classes."""
    models = imported("torchvision").models
    known = models.list_models(module=models)
    if name not in known:
        raise _unknown("torchvision", name, known)
    _need_three(f"torchvision:{name}", channels)
    if weights is not None:
        names = [entry.name for entry in models.get_model_weights(name)]
        if weights not in [*names, "DEFAULT"]:
            raise ValueError(
                f"torchvision:{name} has no weights '{weights}'; it has {', '.join(names)} and DEFAULT, or give a file"
            )

    def make() -> nn.Module:
        network: nn.Module = _fetched(name, lambda: models.get_model(name, weights=weights, **settings))
        fit_head(network, classes)
        return network

    return make


def from_timm(name: str, classes: int, channels: int | None, weights: str | None, settings: Mapping[str, Any]) -> Maker:
    """A network of timm, which fits head and channels itself."""
    timm = imported("timm")
    if not timm.is_model(name):
        raise _unknown("timm", name, timm.list_models())
    if weights not in (None, "DEFAULT"):
        raise ValueError(
            f"timm:{name} has no weights '{weights}'; give DEFAULT, a local file, or the tag in the name as in "
            "timm:resnet50.a1_in1k"
        )
    refuse_loading(f"timm:{name}", settings)
    if channels is None:
        _need_three(f"timm:{name}", channels)

    def make() -> nn.Module:
        def create() -> Any:
            return timm.create_model(
                name, pretrained=weights is not None, num_classes=classes, in_chans=channels, **settings
            )

        network: nn.Module = _fetched(name, create)
        return network

    return make


def from_package(
    name: str, classes: int, channels: int | None, weights: str | None, settings: Mapping[str, Any]
) -> Maker:
    """A network that is installed with its weights."""
    if name not in WEIGHTS:
        raise _unknown("packaged", name, list(WEIGHTS))
    _need_three(f"packaged:{name}", channels)
    return lambda: packaged_network(name, weights, settings, classes)


LIBRARIES: dict[str, Callable[[str, int, int | None, str | None, Mapping[str, Any]], Maker]] = {
    "torchvision": from_torchvision,
    "timm": from_timm,
    "packaged": from_package,
}


def refuse_loading(name: str, settings: Mapping[str, Any]) -> None:
    """Raise for a setting that would make the library load a file by itself."""
    if refused := sorted(set(settings) & NOT_SETTINGS):
        raise ValueError(f"{refused[0]} is no setting of {name} here: it would load a file; pass weights instead")


def _need_three(name: str, channels: int | None) -> None:
    if channels is None:
        raise ValueError(f"{name} takes images, and these inputs are not; take another network: mlp")
    if channels != 3:
        raise ValueError(
            f"{name} takes images of 3 channels, these have {channels}; grey ones are repeated over three by the "
            "augmentation word rgb (--augment rgb), and timm's networks take any number"
        )


def _unknown(library: str, name: str, known: list[str]) -> ValueError:
    close = get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(f'{library}:{word}' for word in close)}?" if close else ""
    return ValueError(f"{library} has no network '{name}'.{hint} It has {len(known)}, such as {', '.join(known[:5])}")


def _fetched(name: str, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except (URLError, ConnectionError, TimeoutError) as error:
        raise ConnectionError(
            f"the weights of {name} could not be fetched ({error}); fetch them on a machine with a connection and give "
            "the file: --set network.weights=FILE, or data.features_weights=FILE for --features"
        ) from error
