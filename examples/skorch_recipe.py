"""MSLG inside a skorch classifier, on real digits with 40 % wrong labels.

Run it: pip install skorch && python examples/skorch_recipe.py
"""

import numpy as np
import torch
from sklearn.datasets import load_digits
from skorch import NeuralNetClassifier
from skorch.dataset import Dataset
from torch import nn

from mslg import Batch, Bilevel, LabelTable, label_step


class Indexed(Dataset):
    """Labels come with the sample's index: the key of its soft label."""

    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return x, (index, y)


class NoisyLabelNet(NeuralNetClassifier):
    """The first epochs are plain training; then each step moves soft labels by the clean samples."""

    def __init__(self, *args, clean=None, warm_up=10, label_rate=15.0, dataset=Indexed, **kwargs):
        super().__init__(*args, dataset=dataset, **kwargs)
        self.clean, self.warm_up, self.label_rate = clean, warm_up, label_rate

    def on_train_begin(self, net, X=None, y=None, **kwargs):
        super().on_train_begin(net, X, y, **kwargs)
        xc, yc = (torch.as_tensor(part) for part in self.clean)
        table = LabelTable(torch.as_tensor(y), classes=int(y.max()) + 1, start=5)
        # A dict, as skorch takes a bare module for a part of the network.
        self.labels_ = {"engine": Bilevel(self.module_), "table": table, "clean": Batch(torch.arange(len(yc)), xc, yc)}

    def train_step_single(self, batch, **fit_params):
        x, (index, y) = batch
        if len(self.history) <= self.warm_up:
            return super().train_step_single((x, y), **fit_params)
        step = label_step(**self.labels_, batch=Batch(index, x, y), label_rate=self.label_rate)
        loss = nn.functional.cross_entropy(step.logits, step.soft)
        loss.backward()  # skorch clears the gradients before and steps the optimizer after
        return {"loss": loss, "y_pred": step.logits}


random = np.random.default_rng(0)
torch.manual_seed(0)
x, true = load_digits(return_X_y=True)
x = x.astype(np.float32) / 16
given = np.where(random.random(len(x)) < 0.4, (true + random.integers(1, 10, len(x))) % 10, true)
network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
options = {"criterion": nn.CrossEntropyLoss, "lr": 0.05, "optimizer__momentum": 0.9, "batch_size": 50}
options |= {"max_epochs": 30, "iterator_train__shuffle": True, "train_split": None, "verbose": 0}
net = NoisyLabelNet(network, clean=(x[1000:1100], true[1000:1100]), **options).fit(x[:1000], given[:1000])
soft = net.labels_["table"].soft(torch.arange(1000)).argmax(1).numpy()
print(f"test accuracy {net.score(x[1100:], true[1100:]):.1%}")
print(f"labels right: given {(given == true)[:1000].mean():.1%}, soft {(soft == true[:1000]).mean():.1%}")
