"""MSLG in a loop with Accelerate: its precision, accumulation and clipping, on real digits with 40 % wrong labels.

Run it: pip install accelerate && python examples/accelerate_recipe.py
"""

import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from mslg import Batch, Bilevel, LabelTable, label_step

torch.manual_seed(0)
x, true = map(torch.as_tensor, load_digits(return_X_y=True))
x = x.float() / 16
given = torch.where(torch.rand(len(x)) < 0.4, (true + torch.randint(1, 10, true.shape)) % 10, true)
clean = Batch(torch.arange(100), x[1000:1100], true[1000:1100])  # verified
noisy = TensorDataset(torch.arange(1000), x[:1000], given[:1000])  # the index is the key of the soft labels

accelerator = Accelerator(cpu=True, mixed_precision="bf16", gradient_accumulation_steps=2)
network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
engine, table = Bilevel(network), LabelTable(given[:1000], classes=10, start=5)
model, optimizer, loader = accelerator.prepare(network, optimizer, DataLoader(noisy, 25, shuffle=True))
for epoch in range(30):
    for batch in (Batch(*parts) for parts in loader):
        with accelerator.accumulate(model), accelerator.autocast():
            if epoch < 10:  # warm-up
                loss = nn.functional.cross_entropy(model(batch.inputs), batch.label)
            else:
                step = label_step(engine, table, batch, clean, label_rate=15)
                loss = nn.functional.cross_entropy(step.logits, step.soft)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            optimizer.zero_grad()
soft = table.soft(torch.arange(1000)).argmax(1)
print(f"test accuracy {(network(x[1100:]).argmax(1) == true[1100:]).float().mean():.1%}")
right = [(labels == true[:1000]).float().mean() for labels in (given[:1000], soft)]
print(f"labels right: given {right[0]:.1%}, soft {right[1]:.1%}")
