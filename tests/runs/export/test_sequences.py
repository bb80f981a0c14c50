"""Networks with tokens and masks are exported from real samples, for any batch size and length."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import mslg

CLASSES = 3


class Tagger(nn.Module):
    """Attention over the places that are filled; made-up zeros would mask everything."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(20, 8), nn.Linear(8, CLASSES)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        rows = self.layer(self.words(input_ids), src_key_padding_mask=attention_mask == 0)
        kept = attention_mask.unsqueeze(2).to(rows.dtype)
        logits: Tensor = self.head((rows * kept).sum(1) / kept.sum(1))
        return logits


def sequences(samples: int, length: int) -> dict[str, np.ndarray[Any, Any]]:
    random = np.random.default_rng(length)
    mask = (np.arange(length) < random.integers(2, length + 1, (samples, 1))).astype(np.int64)
    return {"input_ids": random.integers(1, 20, (samples, length)), "attention_mask": mask}


@pytest.mark.parametrize("to", ["pt2", "onnx"])
def test_masks_and_free_lengths(to: str, tmp_path: Path) -> None:
    label = np.arange(30) % CLASSES
    how: dict[str, Any] = {"method": "cross-entropy", "epochs": 1, "batch_size": 10, "progress": False, "device": "cpu"}
    run = mslg.fit(Tagger, (sequences(30, 7), label), output=tmp_path / "run", **how)
    if to == "onnx":
        for package in ("onnx", "onnxscript", "onnxruntime"):
            pytest.importorskip(package, reason=f"{package} is not installed")
    path = mslg.export(run, to=to, path=tmp_path / f"model.{to}", network=Tagger)
    for samples, length in ((1, 7), (5, 7), (4, 11), (3, 3)):
        inputs = sequences(samples, length)
        tensors = [torch.as_tensor(part) for part in inputs.values()]
        with torch.no_grad():
            expected = run.model.eval()(*tensors)
        if to == "pt2":
            found = torch.export.load(path).module()(*tensors)
        else:
            import onnxruntime

            found = torch.from_numpy(onnxruntime.InferenceSession(path).run(None, inputs)[0])
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
