"""The step of MSLG in a training loop of your own, on real digits with 40 % wrong labels.

Run it: python examples/own_loop.py
"""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from mslg import Batch, Bilevel, LabelTable, label_step

EPOCHS, WARM_UP = 30, 10

random = np.random.default_rng(0)
x, true = load_digits(return_X_y=True)
order = random.permutation(len(x))
x, true = torch.tensor(x[order] / 16, dtype=torch.float32), torch.tensor(true[order])
wrong = torch.tensor(random.random(len(x)) < 0.4)
given = torch.where(wrong, (true + torch.tensor(random.integers(1, 10, len(x)))) % 10, true)
train, test = torch.arange(1000), torch.arange(1100, len(x))
clean = Batch(torch.arange(100), x[1000:1100], true[1000:1100])  # 100 verified samples


def accuracy(network: nn.Module) -> float:
    return float((network(x[test]).argmax(1) == true[test]).float().mean())


def trained(warm_up: int) -> tuple[nn.Module, LabelTable]:
    """A network and a soft label for each training sample."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    engine = Bilevel(network)
    table = LabelTable(given[train], classes=10, start=5)
    for epoch in range(EPOCHS):
        for index in torch.randperm(len(train)).split(50):
            if epoch < warm_up:  # plain training on the given labels
                loss = nn.functional.cross_entropy(network(x[index]), given[index])
            else:  # moves the soft labels of the batch towards what helps the clean samples
                step = label_step(engine, table, Batch(index, x[index], given[index]), clean, label_rate=15)
                loss = nn.functional.cross_entropy(step.logits, step.soft)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return network, table


print(f"cross entropy   test accuracy {accuracy(trained(warm_up=EPOCHS)[0]):.1%}")
network, table = trained(warm_up=WARM_UP)
print(f"MSLG            test accuracy {accuracy(network):.1%}")
soft = table.soft(train)
right = (soft.argmax(1) == true[train]).float().mean()
print(f"labels right    given {(~wrong[train]).float().mean():.1%}, soft {right:.1%}")
suspects = soft[train, given[train]].argsort()[:200]  # the least trust in the given label first
print(f"of the 200 labels trusted least {wrong[suspects].float().mean():.0%} are wrong")
