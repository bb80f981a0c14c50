"""A run's model as a graph that needs neither mslg nor the network's code, for batches of any size."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from ... import __version__
from ...data.batch import Inputs, arguments, call, map_inputs
from ..example_inputs import read_example
from ..folder import Run
from ..load_model import Model, load_model
from .backbone import with_backbone

log = logging.getLogger("mslg")

TOLERANCE = 1e-4  # of logits, relative and absolute


class Graph(NamedTuple):
    """A traced model and its metadata."""

    program: ExportedProgram
    model: Model
    names: list[str]  # of the inputs
    about: dict[str, str]
    samples: list[Inputs]  # batches of real inputs, or made-up ones of a run without

    def example(self) -> tuple[Tensor, ...]:
        """Inputs as positional arguments."""
        return in_order(self.samples[0])


class Positional(nn.Module):
    """A model with positional inputs: torch.export cannot vary the batch size of keyword arguments."""

    def __init__(self, model: Model, names: list[str]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *parts: Tensor) -> Tensor:
        logits: Tensor = self.model(**dict(zip(self.names, parts, strict=True)))
        return logits


def trace(run: Run, network: Any, prepare: Any) -> Graph:
    """Trace the run's model on real inputs, with the backbone of a run on features in front of it. Resizing and
    normalising are part of the graph, softmax is not. The batch size is free, and so is the length of sequences if the
    network allows it."""
    trained = load_model(run.path, network, prepare=prepare).cpu()
    model = with_backbone(trained)
    samples = read_example(run.path, model.example()) if model is trained else []
    samples = samples or [model.example()]
    args, kwargs = arguments(samples[0])
    names = list(kwargs) or (["inputs"] if len(args) == 1 else [f"inputs_{place}" for place in range(len(args))])
    parts = in_order(samples[0])
    if not all(isinstance(part, Tensor) for part in parts):
        raise ValueError(
            "the inputs are tuples or dicts within tuples or dicts, which cannot be exported; flatten them"
        )
    traced = Positional(model, names) if kwargs else model
    lengths = _lengths(samples)
    try:
        program = _exported(traced, parts, lengths)
    except Exception:  # a network that is bound to one length
        try:
            program = _exported(traced, parts, [()] * len(parts))
        except Exception as error:  # whatever the network's own code does not allow
            why = " ".join(str(error).split())[:300]
            raise ValueError(
                f"{type(model.network).__name__} cannot be exported as a graph ({why}); --to safetensors keeps the "
                "weights"
            ) from error
    return Graph(program, model, names, _metadata(run, model, names), samples)


def _exported(model: nn.Module, parts: tuple[Tensor, ...], lengths: list[tuple[int, ...]]) -> ExportedProgram:
    shapes = tuple({0: Dim("batch"), **dict.fromkeys(free, Dim.AUTO)} for free in lengths)
    with quiet(), torch.no_grad():
        return torch.export.export(model, parts, dynamic_shapes=(shapes,))


def _lengths(samples: list[Inputs]) -> list[tuple[int, ...]]:
    """For each input, the dimensions that may vary: where batches differ, and the length of tokens and masks."""
    batches = [in_order(sample) for sample in samples]
    free = []
    for place, part in enumerate(batches[0]):
        shapes = [batch[place].shape for batch in batches]
        differ = [dim for dim in range(1, part.dim()) if len({shape[dim] for shape in shapes}) > 1]
        tokens = [1] if part.dim() == 2 and not part.is_floating_point() else []
        free.append(tuple(sorted({*differ, *tokens})))
    return free


def _sizes(graph: Graph) -> Iterator[Inputs]:
    """Inputs of several sizes: one sample, three, and those of every length that the run kept."""
    first = graph.samples[0]
    yield map_inputs(lambda part: part[:1], first)
    yield map_inputs(lambda part: torch.cat([part, part[:1]]), first)
    yield from graph.samples[1:]


def in_order(inputs: Inputs) -> tuple[Tensor, ...]:
    """The inputs as positional arguments, as the graph takes them."""
    args, kwargs = arguments(inputs)
    return (*args, *kwargs.values())


def check(graph: Graph, predict: Callable[..., Tensor]) -> None:
    """Refuse a file whose outputs differ from the network's."""
    for example in _sizes(graph):  # none has the size that was traced
        with torch.no_grad():
            wanted, found = call(graph.model, example), predict(*in_order(example))
        if found.shape != wanted.shape or not torch.allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE):
            raise ArithmeticError(
                f"the exported graph gives other outputs than {type(graph.model.network).__name__}, so nothing was "
                "written; --to safetensors keeps the weights"
            )


def _metadata(run: Run, model: Model, names: list[str]) -> dict[str, str]:
    words = model.prepare.words
    found = {
        "mslg_version": __version__,
        "classes": json.dumps(model.classes, ensure_ascii=False),
        "inputs": json.dumps(dict(zip(names, _parts(model.about["inputs"]), strict=True))),
        "prepare": json.dumps({"words": words, "in_graph": True}),
        "features_of": json.dumps(model.about.get("features_of")),  # None if the backbone is in the graph
        "backbone": json.dumps(model.about.get("backbone")),
        "outputs": "logits; softmax gives probabilities",
    }
    if (vocabulary := run.path / "vocabulary.json").exists():  # needed to encode texts
        found["vocabulary"] = vocabulary.read_text(encoding="utf-8")
    return found


def _parts(inputs: Any) -> list[Any]:
    if isinstance(inputs, list):
        return inputs
    return [inputs] if isinstance(inputs.get("shape"), list) else list(inputs.values())


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the exporters of torch, which warn about their own internals."""
    import warnings

    before = {name: logging.getLogger(name).level for name in ("torch.onnx", "torch.export", "onnxscript")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for name in before:
                logging.getLogger(name).setLevel(logging.ERROR)
            yield
        finally:
            for name, level in before.items():
                logging.getLogger(name).setLevel(level)
