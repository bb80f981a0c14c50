"""The model as an ONNX graph, with class names and preparation in the metadata."""

from __future__ import annotations

import logging
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...runtime.files import write_atomically
from ..folder import Run
from . import refuse_existing
from .graph import Graph, check, quiet, trace

log = logging.getLogger("mslg")

MOST = 2**31 - 1  # bytes of an ONNX file


def write(run: Run, path: Path, *, force: bool = False, network: Any = None, prepare: Any = None) -> None:
    """Trace, convert, compare if onnxruntime is installed, and only then write."""
    refuse_existing(path, force)
    for package in ("onnx", "onnxscript"):
        _need(package)
    graph = trace(run, network, prepare)
    size = sum(tensor.numel() * tensor.element_size() for tensor in graph.program.state_dict.values())
    if size >= MOST:
        raise ValueError(
            f"the weights have {size:,} bytes, more than an ONNX file can have; --to pt2 has no such limit"
        )
    content = _converted(graph)
    try:
        runtime = import_module("onnxruntime")
    except ImportError:
        log.info("onnxruntime is not installed, so the file was not compared with the network")
    else:
        _check(graph, content, runtime)
    write_atomically(path, content)


def _converted(graph: Graph) -> bytes:
    with quiet():
        converted = torch.onnx.export(
            graph.program,
            graph.example(),
            dynamo=True,
            input_names=graph.names,
            output_names=["logits"],
            verbose=False,
        )
        assert converted is not None
        model = converted.model_proto
    for part in (*model.graph.input, *model.graph.output):
        part.type.tensor_type.shape.dim[0].dim_param = "batch"
    for name, text in graph.about.items():
        model.metadata_props.add(key=name, value=text)
    found: bytes = model.SerializeToString()
    return found


def _check(graph: Graph, content: bytes, runtime: Any) -> None:
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])

    def predict(*parts: Tensor) -> Tensor:
        values = {name: part.numpy() for name, part in zip(graph.names, parts, strict=True)}
        return torch.from_numpy(session.run(None, values)[0])

    check(graph, predict)


def _need(package: str) -> None:
    try:
        import_module(package)
    except ImportError as error:
        raise ImportError(f"{package} is not installed; install it with: pip install 'mslg[onnx]'") from error
