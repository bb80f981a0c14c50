"""What one step costs: time and peak memory of every mode, as multiples of a plain cross-entropy step.

Three networks: the paper's 8-layer CNN, a ResNet-18, and the MLP that is trained on frozen features. Times are medians
over interleaved rounds in one process, so that a busy machine slows all modes alike; a mode that keeps the clean
gradient is timed over a whole cycle of steps. The plain step is that of a tutorial; the others end with the optimizer
step of this package, which frees the gradients afterwards. Peak memory is measured in one fresh process a mode: the
highest resident size during two steps, above the resident size after set-up.

    python benchmarks/step_cost.py                                    the paper's network
    python benchmarks/step_cost.py --network resnet18 --json
    python benchmarks/step_cost.py --write                            all, into benchmarks/results/step_cost.json
    python benchmarks/step_cost.py --profile exact                    where the time goes
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

from mslg.bilevel import Bilevel
from mslg.data.batch import Batch
from mslg.methods.meta_weight_net import MetaWeightNet
from mslg.methods.mslg.method import MSLG
from mslg.networks.cnn import CNN8
from mslg.networks.mlp import MLP
from mslg.networks.resnet import ResNet18
from mslg.runtime.files import write_atomically
from mslg.runtime.machine import versions
from mslg.runtime.memory import keep_freed_memory
from mslg.training.losses import probability_tangent, reverse_kl, soft_cross_entropy
from mslg.training.method import Task
from mslg.training.optimizer_step import OptimizerStep

RESULT = Path(__file__).parent / "results" / "step_cost.json"
CLASSES = 10
LOOK_AHEAD = 0.05
LABEL_RATE = 1.5625
SMALL = 32  # samples in a small clean batch
CYCLE = 4  # steps that a kept clean gradient serves

Step = Callable[[], None]
Clock = Callable[[], float]
CLOCKS: dict[str, Clock] = {"wall": time.perf_counter, "cpu": time.process_time}


@dataclass(frozen=True)
class Kind:
    """A network to measure, with a size and a number of rounds that take minutes on two cores."""

    make: Callable[[int], nn.Module]  # from a width
    shape: tuple[int, ...]
    width: int
    batch: int
    rounds: int


KINDS = {
    "cnn8": Kind(lambda width: CNN8(CLASSES, width=width), (3, 32, 32), 64, 128, 9),
    "resnet18": Kind(lambda width: ResNet18(CLASSES, width=width), (3, 32, 32), 64, 32, 5),
    "mlp": Kind(lambda width: MLP(512, CLASSES, hidden=[width], dropout=0.5), (512,), 256, 256, 99),
}


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
    def build(cls, kind: Kind) -> Bench:
        torch.manual_seed(0)
        network = kind.make(kind.width).train()
        # The rate is so small that the weights hardly move: every round sees the same arithmetic.
        optimizer = torch.optim.SGD(network.parameters(), lr=1e-4, momentum=0.9, weight_decay=1e-4)
        inputs, clean_inputs = (torch.randn(kind.batch, *kind.shape) for _ in range(2))
        label, clean_label = (torch.randint(0, CLASSES, (kind.batch,)) for _ in range(2))
        label_logits = 10 * F.one_hot(label, CLASSES).float()
        return cls(network, optimizer, inputs, label, label_logits, clean_inputs, clean_label)

    def first(self, count: int) -> Bench:
        """The same network and optimizer on the first few samples."""
        names = ("inputs", "label", "label_logits", "clean_inputs", "clean_label")
        return replace(self, **{name: getattr(self, name)[:count] for name in names})

    def inner_loss(self, logits: Tensor, label_logits: Tensor) -> Tensor:
        return reverse_kl(logits.log_softmax(1), label_logits.log_softmax(1)).mean()

    def descend(self, loss: Tensor) -> None:
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def training_loss(self, logits: Tensor, label_logits: Tensor) -> Tensor:
        """The paper's training loss (divergence + entropy) at the new soft labels."""
        log_probs, log_soft = logits.log_softmax(1), label_logits.log_softmax(1)
        return soft_cross_entropy(log_soft, log_probs.exp()).mean()


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
        ahead = {name: p - LOOK_AHEAD * g for (name, p), g in zip(parameters.items(), gradient, strict=True)}
        buffers = {name: buffer.clone() for name, buffer in network.named_buffers()}
        clean = F.cross_entropy(functional_call(network, (ahead, buffers), (bench.clean_inputs,)), bench.clean_label)
        (slope,) = torch.autograd.grad(clean, label_logits, retain_graph=True)
        rate = LABEL_RATE * batch / LOOK_AHEAD  # the slope carries look_ahead/batch
        bench.descend(bench.training_loss(logits, (label_logits - rate * slope).detach()))

    return step


def ours(*, look_ahead: float = LOOK_AHEAD, clean: int | None = None, **options: Any) -> Callable[[Bench], Step]:
    def build(bench: Bench) -> Step:
        engine = Bilevel(bench.network, **options)

        def step() -> None:
            meta = engine(
                bench.inputs,
                lambda logits: bench.inner_loss(logits, bench.label_logits),
                bench.clean_inputs[:clean],
                lambda logits: F.cross_entropy(logits, bench.clean_label[:clean]),
                look_ahead=look_ahead,
            )
            move = probability_tangent(meta.logits.detach().log_softmax(1), meta.tangent)
            loss = bench.training_loss(meta.logits, bench.label_logits - LABEL_RATE * move)
            OptimizerStep()(bench.optimizer, loss)

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


def preset(name: str) -> dict[str, Any]:
    """What a preset of MSLG asks of the engine."""
    return MSLG.presets[name](Task(torch.zeros(1, dtype=torch.int64), CLASSES, nn.Identity, epochs=1))


STEPS: dict[str, Callable[[Bench], Step]] = {
    "plain": plain,
    "double-backward": naive,
    "exact": ours(),
    "compiled": ours(mode="compiled"),
    "recompute": ours(recompute=True),
    "difference": ours(mode="difference"),
    "no-look-ahead": ours(look_ahead=0.0),
    f"clean-batch-{SMALL}": ours(clean=SMALL),
    f"clean-every-{CYCLE}": ours(clean_every=CYCLE),
    "head": ours(mode="head"),
    "fast": ours(**preset("fast")),
    "meta-weight-net": meta_weight_net,
}
CYCLES = {f"clean-every-{CYCLE}": CYCLE, "fast": preset("fast").get("clean_every", 1)}


def measure_time(modes: list[str], kind: Kind, clock: Clock = time.perf_counter) -> dict[str, float]:
    """Seconds of one step, the median over the rounds, with freed memory kept as in a run. The first round warms up and
    is not counted."""
    keep_freed_memory()
    bench = Bench.build(kind)
    steps = {mode: STEPS[mode](bench) for mode in modes}
    taken: dict[str, list[float]] = {mode: [] for mode in steps}
    for number in range(kind.rounds + 1):
        for mode, step in steps.items():
            cycle = CYCLES.get(mode, 1)
            gc.collect()  # or one mode pays for what another has left behind
            start = clock()
            for _ in range(cycle):
                step()
            if number:
                taken[mode].append((clock() - start) / cycle)
    return {mode: median(times) for mode, times in taken.items()}


def measure_memory(mode: str, kind: Kind) -> int | None:
    """Kilobytes that two steps need above set-up, in this process; None where the system does not tell."""
    bench = Bench.build(kind)
    STEPS[mode](bench.first(2))()  # kernels are loaded and the optimizer has its state
    bench.optimizer.zero_grad()
    step = STEPS[mode](bench)
    if mode == "compiled":
        step()  # or the compiler's memory would count
    gc.collect()
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew
        before = resident("VmRSS")
        step()
        step()
        return resident("VmHWM") - before
    except OSError:
        return None


def profile(mode: str, kind: Kind, top: int = 8) -> list[tuple[str, float, float]]:
    """Where the time of a step goes: operators, their share of it, and how often each is called."""
    step, steps = STEPS[mode](Bench.build(kind)), 2 * CYCLES.get(mode, 1)
    step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as found:
        for _ in range(steps):
            step()
    operators = sorted(found.key_averages(), key=lambda each: -each.self_cpu_time_total)
    total = sum(each.self_cpu_time_total for each in operators)
    return [(each.key, each.self_cpu_time_total / total, each.count / steps) for each in operators[:top]]


def resident(field: str) -> int:
    """A field of this process's status, in kilobytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    raise OSError(f"/proc/self/status has no {field}")


def memory_in_fresh_processes(modes: list[str], name: str, kind: Kind) -> dict[str, int | None]:
    # So that the C library gives every freed tensor back at once: the resident size is then what is in use.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    size = ["--network", name, "--width", str(kind.width), "--batch", str(kind.batch)]
    measured: dict[str, int | None] = {}
    for mode in modes:
        command = [sys.executable, __file__, "--memory", mode, *size]
        answer = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        measured[mode] = json.loads(answer.stdout)
    return measured


def in_multiples_of_plain(values: dict[str, Any]) -> dict[str, float | None]:
    unit = values["plain"]
    return {mode: round(value / unit, 3) if value is not None and unit else None for mode, value in values.items()}


def measure(modes: list[str], name: str, kind: Kind, clock: Clock) -> dict[str, Any]:
    """Time and memory of these modes as multiples of the plain step, and what that takes."""
    seconds, kilobytes = measure_time(modes, kind, clock), memory_in_fresh_processes(modes, name, kind)
    used = kilobytes["plain"]
    return {
        "time": in_multiples_of_plain(seconds),
        "memory": in_multiples_of_plain(kilobytes),
        "plain_ms": round(seconds["plain"] * 1000, 2),
        "plain_mb": None if used is None else round(used / 1024, 1),
    }


def write(path: Path, names: list[str], chosen: dict[str, int], clock: str) -> None:
    """Measure all modes on these networks, each at its own size unless another is chosen, into a file of results, in
    which other networks stay as they are."""
    networks = json.loads(path.read_text(encoding="utf-8"))["networks"] if path.exists() else {}
    told = chosen if clock == "wall" else {**chosen, "clock": clock}
    for name in names:
        kind = replace(KINDS[name], **chosen)
        size = {"width": kind.width, "batch": kind.batch, "rounds": kind.rounds}
        machine = f"{os.cpu_count()} CPU cores, {torch.get_num_threads()} threads, {clock} time"
        networks[name] = {**size, "machine": machine, **measure(list(STEPS), name, kind, CLOCKS[clock])}
        print(f"{name}: {networks[name]}", file=sys.stderr, flush=True)
        found = {
            "command": " ".join(["python benchmarks/step_cost.py --write", *(f"--{k} {v}" for k, v in told.items())]),
            "versions": versions(),
            "networks": networks,
        }
        write_atomically(path, json.dumps(found, indent=1).encode() + b"\n")  # now: the next network takes minutes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", choices=KINDS, help="what to measure (default: cnn8; with --write all)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--write", action="store_true", help=f"measure all networks into results/{RESULT.name}")
    parser.add_argument("--rounds", type=int, help="rounds that count, after one to warm up (default: the network's)")
    parser.add_argument("--width", type=int, help="width of the network (default: its own; 64 is the paper's)")
    parser.add_argument("--batch", type=int, help="samples in each of the two batches (default: the network's)")
    parser.add_argument(
        "--clock",
        choices=CLOCKS,
        default="wall",
        help="cpu: for a busy machine, with OMP_NUM_THREADS=1 (default: wall)",
    )
    parser.add_argument("--modes", nargs="+", choices=STEPS, default=list(STEPS), help="plain and these (default: all)")
    parser.add_argument("--memory", choices=STEPS, help="measure only the memory of this mode, in this process")
    parser.add_argument("--profile", choices=STEPS, help="print where the time of this mode goes, and nothing else")
    options = parser.parse_args()
    sizes = {name: getattr(options, name) for name in ("rounds", "width", "batch")}
    chosen = {name: value for name, value in sizes.items() if value is not None}
    network = options.network or "cnn8"
    kind = replace(KINDS[network], **chosen)
    if options.memory:
        print(json.dumps(measure_memory(options.memory, kind)))
        return
    if options.profile:
        for operator, share, calls in profile(options.profile, kind):
            print(f"{operator:<40} {share:6.1%} {calls:6.1f} calls a step")
        return
    if options.write:
        write(RESULT, [options.network] if options.network else list(KINDS), chosen, options.clock)
        return
    modes = [mode for mode in STEPS if mode in ("plain", *options.modes)]
    found = measure(modes, network, kind, CLOCKS[options.clock])
    if options.json:
        print(json.dumps(found))
        return
    print(f"{network}, batch {kind.batch}: a plain step takes {found['plain_ms']} ms, {found['plain_mb']} MB")
    print(f"{'mode':<16} {'time':>6} {'memory':>7}")
    for mode in modes:
        memory = found["memory"][mode]
        print(f"{mode:<16} {found['time'][mode]:6.2f} {'–' if memory is None else f'{memory:.2f}':>7}")


if __name__ == "__main__":
    main()
