"""MSLG in a LightningModule, on real digits with 40 % wrong labels.

Run it: pip install lightning && python examples/lightning_recipe.py
"""

import lightning
import torch
from lightning.pytorch.utilities.combined_loader import CombinedLoader
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from mslg import Batch, Bilevel, LabelTable, label_step


class NoisyLabels(lightning.LightningModule):
    def __init__(self, given: torch.Tensor, classes: int, warm_up: int) -> None:
        super().__init__()
        self.warm_up, self.network = warm_up, nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, classes))
        self.table, self.engine = LabelTable(given, classes, start=5), Bilevel(self.network)

    def training_step(self, batches: dict[str, list[torch.Tensor]], _: int) -> torch.Tensor:
        batch, clean = Batch(*batches["noisy"]), Batch(*batches["clean"])
        if self.current_epoch < self.warm_up:
            return nn.functional.cross_entropy(self.network(batch.inputs), batch.label)
        step = label_step(self.engine, self.table, batch, clean, label_rate=15)  # moves the labels of the batch
        return nn.functional.cross_entropy(step.logits, step.soft)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.network.parameters(), lr=0.05, momentum=0.9)


torch.manual_seed(0)
x, true = map(torch.tensor, load_digits(return_X_y=True))
x = x.float() / 16
given = torch.where(torch.rand(len(x)) < 0.4, (true + torch.randint(1, 10, true.shape)) % 10, true)
noisy = TensorDataset(torch.arange(1000), x[:1000], given[:1000])  # the index is the key of the soft labels
clean = TensorDataset(torch.arange(100), x[1000:1100], true[1000:1100])
loaders = {"noisy": DataLoader(noisy, 50, shuffle=True), "clean": DataLoader(clean, 100, shuffle=True)}
module = NoisyLabels(given[:1000], classes=10, warm_up=10)
trainer = lightning.Trainer(max_epochs=30, gradient_clip_val=5.0, accelerator="cpu", logger=False)
trainer.fit(module, CombinedLoader(loaders, "max_size_cycle"))
soft = module.table.soft(torch.arange(1000))
print(f"labels right: 40 % were wrong, soft {(soft.argmax(1) == true[:1000]).float().mean():.1%}")
