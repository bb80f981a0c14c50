"""What one step costs: time and peak memory of every mode, as multiples of a plain cross-entropy step.

The network is the paper's 8-layer CNN. Times are medians over interleaved rounds in one process, so that a busy machine
slows all modes alike. Peak memory is measured in one fresh process a mode: the highest resident size during two steps,
above the resident size after set-up.

    python benchmarks/step_cost.py
    python benchmarks/step_cost.py --json --rounds 9 --width 64 --batch 128
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from mslg.batch import Batch
from mslg.bilevel import Bilevel
from mslg.losses import probability_tangent, reverse_kl, soft_cross_entropy
from mslg.method import Task
from mslg.methods.meta_weight_net import MetaWeightNet
from mslg.networks.cnn import CNN8

CLASSES = 10
LOOK_AHEAD = 0.05
LABEL_RATE = 1.5625

Step = Callable[[], None]


@dataclass
class Bench:
    """A network in training, a noisy batch with its label logits, and a clean batch."""

    network: nn.Module
    optimizer: torch.optim.Optimizer
    inputs: Tensor
    label: Tensor
    label_logits: Tensor
    clean_inputs: Tensor
    clean_label: Tensor

    @classmethod
    def build(cls, width: int, batch: int) -> Bench:
        torch.manual_seed(0)
        network = CNN8(CLASSES, width=width).train()
        # The rate is so small that the weights hardly move: every round sees the same arithmetic.
        optimizer = torch.optim.SGD(network.parameters(), lr=1e-4, momentum=0.9, weight_decay=1e-4)
        inputs, clean_inputs = (torch.randn(batch, 3, 32, 32) for _ in range(2))
        label, clean_label = (torch.randint(0, CLASSES, (batch,)) for _ in range(2))
        label_logits = 10 * F.one_hot(label, CLASSES).float()
        return cls(network, optimizer, inputs, label, label_logits, clean_inputs, clean_label)

    def first(self, count: int) -> Bench:
        """The same network and optimizer on the first few samples."""
        names = ("inputs", "label", "label_logits", "clean_inputs", "clean_label")
        return replace(self, **{name: getattr(self, name)[:count] for name in names})

    def inner_loss(self, logits: Tensor, label_logits: Tensor) -> Tensor:
        return reverse_kl(logits.log_softmax(1), label_logits.log_softmax(1)).mean()

    def clean_loss(self, logits: Tensor) -> Tensor:
        return F.cross_entropy(logits, self.clean_label)

    def descend(self, loss: Tensor) -> None:
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def train_on(self, logits: Tensor, label_logits: Tensor) -> None:
        """The paper's training loss (divergence + entropy) at the new soft labels, and the optimizer's step."""
        log_probs, log_soft = logits.log_softmax(1), label_logits.log_softmax(1)
        self.descend(soft_cross_entropy(log_soft, log_probs.exp()).mean())


def plain(bench: Bench) -> Step:
    def step() -> None:
        bench.descend(F.cross_entropy(bench.network(bench.inputs), bench.label))

    return step


def naive(bench: Bench) -> Step:
    """The clean loss differentiated through the recorded look-ahead, down to the label logits: reverse mode twice."""
    network, batch = bench.network, len(bench.inputs)

    def step() -> None:
        parameters = dict(network.named_parameters())
        label_logits = bench.label_logits.clone().requires_grad_()
        logits = network(bench.inputs)
        inner = bench.inner_loss(logits, label_logits)
        gradient = torch.autograd.grad(inner, list(parameters.values()), create_graph=True)
        ahead = {name: p - LOOK_AHEAD * g for (name, p), g in zip(parameters.items(), gradient)}
        buffers = {name: buffer.clone() for name, buffer in network.named_buffers()}
        clean = bench.clean_loss(functional_call(network, (ahead, buffers), (bench.clean_inputs,)))
        (slope,) = torch.autograd.grad(clean, label_logits, retain_graph=True)
        rate = LABEL_RATE * batch / LOOK_AHEAD  # the slope carries look_ahead/batch
        bench.train_on(logits, (label_logits - rate * slope).detach())

    return step


def ours(*, look_ahead: float = LOOK_AHEAD, **options: Any) -> Callable[[Bench], Step]:
    def build(bench: Bench) -> Step:
        engine = Bilevel(bench.network, **options)

        def step() -> None:
            meta = engine(
                bench.inputs,
                lambda logits: bench.inner_loss(logits, bench.label_logits),
                bench.clean_inputs,
                bench.clean_loss,
                look_ahead=look_ahead,
            )
            move = probability_tangent(meta.logits.detach().log_softmax(1), meta.tangent)
            bench.train_on(meta.logits, bench.label_logits - LABEL_RATE * move)

        return step

    return build


def meta_weight_net(bench: Bench) -> Step:
    """The method's own step, on the same network: one engine serves both."""
    task = Task(bench.label, CLASSES, bench.network, epochs=1, batch_size=len(bench.label))
    method = MetaWeightNet(task, look_ahead=LOOK_AHEAD)
    method.optimizer = bench.optimizer
    index = torch.arange(len(bench.label))
    noisy, clean = Batch(index, bench.inputs, bench.label), Batch(index, bench.clean_inputs, bench.clean_label)

    def step() -> None:
        method.step(noisy, iter([clean]))

    return step


STEPS: dict[str, Callable[[Bench], Step]] = {
    "plain": plain,
    "double-backward": naive,
    "exact": ours(),
    "recompute": ours(recompute=True),
    "difference": ours(mode="difference"),
    "no-look-ahead": ours(look_ahead=0.0),
    "head": ours(mode="head"),
    "meta-weight-net": meta_weight_net,
}


def measure_time(modes: list[str], width: int, batch: int, rounds: int) -> dict[str, float]:
    """Seconds of one step, the median over the rounds. The first round warms up and is not counted."""
    bench = Bench.build(width, batch)
    steps = {mode: STEPS[mode](bench) for mode in modes}
    taken: dict[str, list[float]] = {mode: [] for mode in steps}
    for number in range(rounds + 1):
        for mode, step in steps.items():
            gc.collect()  # or one mode pays for what another has left behind
            start = time.perf_counter()
            step()
            if number:
                taken[mode].append(time.perf_counter() - start)
    return {mode: median(times) for mode, times in taken.items()}


def measure_memory(mode: str, width: int, batch: int) -> int | None:
    """Kilobytes that two steps need above set-up, in this process; None where the system does not tell."""
    bench = Bench.build(width, batch)
    STEPS[mode](bench.first(2))()  # kernels are loaded and the optimizer has its state
    bench.optimizer.zero_grad()
    step = STEPS[mode](bench)
    gc.collect()
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew
        before = resident("VmRSS")
        step()
        step()
        return resident("VmHWM") - before
    except OSError:
        return None


def resident(field: str) -> int:
    """A field of this process's status, in kilobytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    raise OSError(f"/proc/self/status has no {field}")


def memory_in_fresh_processes(modes: list[str], width: int, batch: int) -> dict[str, int | None]:
    # So that the C library gives every freed tensor back at once: the resident size is then what is in use.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    size = ["--width", str(width), "--batch", str(batch)]
    measured: dict[str, int | None] = {}
    for mode in modes:
        command = [sys.executable, __file__, "--memory", mode, *size]
        answer = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        measured[mode] = json.loads(answer.stdout)
    return measured


def in_multiples_of_plain(values: dict[str, Any]) -> dict[str, float | None]:
    unit = values["plain"]
    return {mode: round(value / unit, 3) if value is not None and unit else None for mode, value in values.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--rounds", type=int, default=9, help="rounds that count, after one to warm up (default: 9)")
    parser.add_argument("--width", type=int, default=64, help="width of the first block (default: 64, the paper's)")
    parser.add_argument("--batch", type=int, default=128, help="samples in each of the two batches (default: 128)")
    parser.add_argument("--modes", nargs="+", choices=STEPS, default=list(STEPS), help="plain and these (default: all)")
    parser.add_argument("--memory", choices=STEPS, help="measure only the memory of this mode, in this process")
    options = parser.parse_args()
    if options.memory:
        print(json.dumps(measure_memory(options.memory, options.width, options.batch)))
        return
    modes = [mode for mode in STEPS if mode in ("plain", *options.modes)]
    seconds = measure_time(modes, options.width, options.batch, options.rounds)
    kilobytes = memory_in_fresh_processes(modes, options.width, options.batch)
    times, memory = in_multiples_of_plain(seconds), in_multiples_of_plain(kilobytes)
    if options.json:
        print(json.dumps({"time": times, "memory": memory, "plain_ms": round(seconds["plain"] * 1000, 2)}))
        return
    print(f"{'mode':<16} {'ms':>9} {'× plain':>8} {'MB':>8} {'× plain':>8}")
    for mode in modes:
        used, multiple = kilobytes[mode], memory[mode]
        in_words = "       –        –" if used is None or multiple is None else f"{used / 1024:8.0f} {multiple:8.2f}"
        print(f"{mode:<16} {seconds[mode] * 1000:9.1f} {times[mode]:8.2f} {in_words}")


if __name__ == "__main__":
    main()
