"""The cost of each mode in plain steps, and its cosine to the exact label gradient, on a given network and data."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ...bilevel import MODES, Bilevel
from ...bilevel.label_table import LabelTable
from ...data.batch import Batch, call
from ...data.samples import Samples
from ...data.source import Source
from ...runtime.seeds import seeded
from ...training.losses import cross_entropy, probability_tangent, reverse_kl


class Row(NamedTuple):
    """One mode."""

    mode: str
    cost: float | None  # plain steps; None where the mode does not work
    cosine: float | None  # to the exact gradient
    way: str


def diagnose(
    factory: Callable[[], nn.Module],
    source: Source,
    *,
    batch_size: int = 128,
    rounds: int = 7,
    look_ahead: float = 0.002,
    compiled: bool = False,
    seed: int = 0,
) -> list[Row]:
    """Measure every mode, interleaved with plain steps so that a busy machine disturbs all alike; with `compiled` also
    the compiled one, which takes a while to begin."""
    cpu = torch.device("cpu")
    with seeded(cpu, seed, "doctor"):
        network = factory().train()
        order = torch.randperm(len(source))
    size = min(batch_size, len(source) // 2)
    samples = Samples(source.store, torch.arange(len(source)), source.label)
    noisy, clean = samples.batches([order[:size], order[size : 2 * size]])
    table = LabelTable(source.label, len(source.classes))
    steps: dict[str, Callable[[], Tensor | None]] = {"plain": lambda: _plain(network, noisy)}
    modes = [mode for mode in MODES if compiled or mode != "compiled"]
    engines: dict[str, Bilevel] = {mode: Bilevel(network, mode=mode) for mode in modes}
    for mode, engine in engines.items():
        steps[mode] = lambda engine=engine: _label_gradient(engine, table, noisy, clean, look_ahead)  # type: ignore[misc]
    steps["no look-ahead"] = lambda: _label_gradient(engines["exact"], table, noisy, clean, 0.0)
    gradients, broken = {}, {}
    for name, step in list(steps.items()):
        try:
            with seeded(cpu, seed, "step"):
                gradients[name] = step()
        except (RuntimeError, ValueError) as error:
            broken[name] = " ".join(str(error).split())[:80]
            del steps[name]
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            begun = time.perf_counter()
            step()
            taken[name].append(time.perf_counter() - begun)
    plain = statistics.median(taken["plain"])
    exact = gradients.get("exact")
    rows = []
    for name in (*modes, "no look-ahead"):
        if name in broken:
            rows.append(Row(name, None, None, f"does not work: {broken[name]}"))
            continue
        way = engines[name].way if name in engines else engines["exact"].way
        rows.append(Row(name, statistics.median(taken[name]) / plain, _cosine(gradients[name], exact), way))
    return rows


def _plain(network: nn.Module, batch: Batch) -> None:
    network.zero_grad(set_to_none=True)
    cross_entropy(call(network, batch.inputs).log_softmax(1), batch.label).mean().backward()


def _label_gradient(engine: Bilevel, table: LabelTable, noisy: Batch, clean: Batch, look_ahead: float) -> Tensor:
    soft = table.log_soft(noisy.index)
    engine.network.zero_grad(set_to_none=True)
    meta = engine(
        noisy.inputs,
        lambda logits: reverse_kl(logits.log_softmax(1), soft).mean(),
        clean.inputs,
        lambda logits: cross_entropy(logits.log_softmax(1), clean.label).mean(),
        look_ahead=look_ahead,
    )
    log_probs = meta.logits.log_softmax(1)
    reverse_kl(log_probs, soft).mean().backward()
    return probability_tangent(log_probs.detach(), meta.tangent)


def _cosine(gradient: Tensor | None, exact: Tensor | None) -> float | None:
    if gradient is None or exact is None:
        return None
    return float(torch.cosine_similarity(gradient.flatten(), exact.flatten(), dim=0))
