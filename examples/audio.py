"""Audio by features: log-mel spectra of synthetic sounds, 40 % of them under the wrong name.

The sounds are made here (a tone, a rising and a falling chirp, a pulse, noise; each with hiss), as no set of recordings
comes with a package. With recordings of your own only `sound` changes. Run it: python examples/audio.py
"""

import numpy as np
import torch

import mslg
from mslg.networks.mlp import MLP

RATE, SECONDS, BANDS = 8000, 0.5, 32
KINDS = ("tone", "rising", "falling", "pulses", "noise")


def sound(kind: str, random: np.random.Generator) -> np.ndarray:
    time = np.arange(int(RATE * SECONDS)) / RATE
    low, high = random.uniform(200, 600), random.uniform(1000, 3000)
    slope = {"rising": high - low, "falling": low - high}.get(kind, 0) / SECONDS
    start = high if kind == "falling" else low
    wave = np.sin(2 * np.pi * (start * time + slope * time**2 / 2))
    if kind == "pulses":
        wave *= (time * random.uniform(8, 16)) % 1 < 0.3
    if kind == "noise":
        wave = random.normal(size=len(time))
    return wave + random.uniform(0.5, 2.0) * random.normal(size=len(time))


def log_mel(waves: np.ndarray) -> torch.Tensor:
    """(sounds, 1, bands, frames): energies in bands that are evenly spread on the mel scale."""
    spectrum = torch.stft(torch.tensor(waves), 256, 128, window=torch.hann_window(256).double(), return_complex=True)
    edges = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + RATE / 2 / 700), BANDS + 2) / 2595) - 1)
    bins = np.linspace(0, RATE / 2, 129)
    rows = zip(edges, edges[1:], edges[2:], strict=False)
    filters = np.stack([np.interp(bins, [left, middle, right], [0, 1, 0]) for left, middle, right in rows])
    return (torch.tensor(filters) @ spectrum.abs() ** 2 + 1e-3).log().float().unsqueeze(1) / 4


random = np.random.default_rng(0)
true = random.integers(0, len(KINDS), 2500)
inputs = log_mel(np.stack([sound(KINDS[kind], random) for kind in true]))
given = np.where(random.random(len(true)) < 0.4, (true + random.integers(1, 5, len(true))) % 5, true)
clean, test, train = np.split(np.arange(len(true)), [200, 1000])
for method in ("cross-entropy", "mslg"):
    result = mslg.fit(
        lambda: MLP(inputs[0].numel(), len(KINDS), hidden=(64,)),
        (inputs[train], given[train]),
        (inputs[clean], true[clean]),
        test=(inputs[test], true[test]),
        method=method,
        epochs=12,
        progress=False,
    )
    print(f"{method:<15} test accuracy {result.summary['last']['test/accuracy']:.1%}")
for row in result.labels.sort_values("rank").head().itertuples():
    kind = KINDS[true[train[int(row.id)]]]
    print(f"  sound {row.id}: {KINDS[int(row.given_label)]}, rather {KINDS[int(row.suggested_label)]} (it is: {kind})")
