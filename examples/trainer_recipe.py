"""MSLG inside the Trainer of transformers, on real digits with 40 % wrong labels.

Run it: pip install transformers accelerate && python examples/trainer_recipe.py
"""

import torch
from sklearn.datasets import load_digits
from torch import nn
from transformers import Trainer, TrainingArguments
from transformers.modeling_outputs import SequenceClassifierOutput

from mslg import Batch, Bilevel, LabelTable, label_step


class Net(nn.Module):  # or AutoModelForSequenceClassification.from_pretrained(…)
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, pixels, labels=None):
        logits = self.layers(pixels)
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return SequenceClassifierOutput(loss=loss, logits=logits)


class NoisyLabelTrainer(Trainer):
    def __init__(self, *args, given, clean, warm_up, classes, **kwargs):
        super().__init__(*args, **kwargs)
        self.table, self.engine = LabelTable(given, classes, start=5), Bilevel(self.model)
        self.clean, self.warm_up = clean, warm_up
        self.model_accepts_loss_kwargs = False  # the loss below is a mean: divide it by the accumulation steps

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        index, labels = inputs.pop("index"), inputs["labels"]
        if not model.training or self.state.epoch < self.warm_up:
            return super().compute_loss(model, inputs, return_outputs, **kwargs)
        batch = Batch(index, {name: value for name, value in inputs.items() if name != "labels"}, labels)
        step = label_step(self.engine, self.table, batch, self.clean, label_rate=15)
        return nn.functional.cross_entropy(step.logits, step.soft)


torch.manual_seed(0)
x, true = map(torch.as_tensor, load_digits(return_X_y=True))
x = x.float() / 16
given = torch.where(torch.rand(len(x)) < 0.4, (true + torch.randint(1, 10, true.shape)) % 10, true)
rows = [{"pixels": x[i], "labels": given[i], "index": i} for i in range(1000)]  # or a datasets.Dataset
clean = Batch(torch.arange(100), {"pixels": x[1000:1100]}, true[1000:1100])
how = {"per_device_train_batch_size": 25, "gradient_accumulation_steps": 2, "max_grad_norm": 5.0, "optim": "sgd"}
how |= {"learning_rate": 0.3, "num_train_epochs": 30, "remove_unused_columns": False, "use_cpu": True}
how |= {"report_to": [], "save_strategy": "no", "logging_strategy": "no", "disable_tqdm": True}
more = {"given": given[:1000], "clean": clean, "warm_up": 10, "classes": 10}
trainer = NoisyLabelTrainer(Net(), TrainingArguments("trainer", **how), train_dataset=rows, **more)
trainer.train()
soft = trainer.table.soft(torch.arange(1000)).argmax(1)
print(f"test accuracy {(trainer.model(x[1100:]).logits.argmax(1) == true[1100:]).float().mean():.1%}")
right = [(labels == true[:1000]).float().mean() for labels in (given[:1000], soft)]
print(f"labels right: given {right[0]:.1%}, soft {right[1]:.1%}")
