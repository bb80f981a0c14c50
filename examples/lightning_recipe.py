"""MSLG as a LightningModule with manual optimisation, on real digits with 40 % wrong labels.

Run it: pip install lightning && python examples/lightning_recipe.py
"""

import lightning
import torch
from lightning.pytorch.utilities.combined_loader import CombinedLoader
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from mslg import Batch, Bilevel, LabelTable, mslg_step


class NoisyLabels(lightning.LightningModule):
    """A network and the soft labels of its training samples; Lightning's checkpoints hold both."""

    def __init__(self, given: torch.Tensor, classes: int, warm_up: int) -> None:
        super().__init__()
        self.automatic_optimization = False  # the step takes several gradients
        self.warm_up = warm_up
        self.network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, classes))
        self.table = LabelTable(given, classes, start=5)
        self.engine = Bilevel(self.network)

    def training_step(self, batches: dict[str, list[torch.Tensor]], _: int) -> None:
        batch, clean, optimizer = Batch(*batches["noisy"]), Batch(*batches["clean"]), self.optimizers()
        if self.current_epoch < self.warm_up:
            optimizer.zero_grad()
            self.manual_backward(nn.functional.cross_entropy(self.network(batch.inputs), batch.label))
            optimizer.step()
            return
        options = {"label_rate": 15, "loss": "forward-kl", "entropy_weight": 0}
        result = mslg_step(self.engine, self.table, optimizer, batch, clean, **options)
        self.log_dict(result.scalars)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.network.parameters(), lr=0.05, momentum=0.9)


lightning.seed_everything(0, verbose=False)
x, true = map(torch.as_tensor, load_digits(return_X_y=True))
order = torch.randperm(len(x))
x, true = x[order].float() / 16, true[order]
given = torch.where(torch.rand(len(x)) < 0.4, (true + torch.randint(1, 10, true.shape)) % 10, true)
noisy = TensorDataset(torch.arange(1000), x[:1000], given[:1000])  # the index is the key of the soft labels
clean = TensorDataset(torch.arange(100), x[1000:1100], true[1000:1100])
loaders = {"noisy": DataLoader(noisy, 50, shuffle=True), "clean": DataLoader(clean, 100, shuffle=True)}
module = NoisyLabels(given[:1000], classes=10, warm_up=10)
quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
trainer = lightning.Trainer(max_epochs=30, accelerator="cpu", **quiet)
trainer.fit(module, CombinedLoader(loaders, "max_size_cycle"))
accuracy = (module.network(x[1100:]).argmax(1) == true[1100:]).float().mean()
soft = module.table.soft(torch.arange(1000)).argmax(1)
print(f"test accuracy {accuracy:.1%} after {trainer.global_step} steps")
print(
    f"labels right: given {(given == true)[:1000].float().mean():.1%}, soft {(soft == true[:1000]).float().mean():.1%}"
)
