"""Evaluation: it alone holds the test set and true labels, which methods never see."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..data.sample_table import SampleTable, pieces_of
from ..data.samples import Samples
from ..data.splits import Splits
from ..networks.evaluating import evaluating
from ..runtime.distributed import gathered, rank, ranks
from ..runtime.seeds import generator
from .method import Method
from .prediction_history import PredictionHistory

EXAMINED = 2**20  # labels evaluated after an epoch: enough for a standard error of a twentieth of a percent


@dataclass
class Evaluation:
    """Measures a method: on the test set, on held-out clean samples, and on the labels of the training set."""

    data: Splits
    test: Samples | None = None
    true_label: Tensor | None = None  # of every sample of the source; −1 where unknown
    confusion: Tensor | None = field(default=None, init=False)  # of the last test: rows true, columns predicted
    predicted: dict[str, Tensor] = field(default_factory=dict, init=False)  # the last predicted classes of each part

    def __call__(self, method: Method, history: PredictionHistory) -> dict[str, float]:
        metrics: dict[str, float] = {}
        for name, samples in {"test": self.test, "select": self.data.select, "report": self.data.report}.items():
            if samples is not None and len(samples):
                log_probs = predictions(method, self.data, samples)
                metrics |= {f"{name}/{key}": value for key, value in scores(log_probs, samples.label).items()}
                self.predicted[name] = log_probs.argmax(1)
                if name == "test":
                    self.confusion = confusion_matrix(log_probs.argmax(1), samples.label, method.task.classes)
        return metrics | self.label_scores(method, history)

    def label_scores(self, method: Method, history: PredictionHistory) -> dict[str, float]:
        """Accuracy of the training labels: as given, as learned by the method, and as predicted during training."""
        own = self._examined()
        own = own[history.seen(own)]
        predicted = {
            "last": history.last_predicted[own].cpu().long(),
            "mean": _argmax(history.mean, own),
        }
        soft = _table_argmax(method, own)
        # From here on, of all ranks' samples together.
        index, predicted = gathered(own), {name: gathered(values) for name, values in predicted.items()}
        soft = None if soft is None else gathered(soft)
        if not len(index):
            return {}
        given = method.task.given[index].cpu()
        metrics = {"predictions/differ": _share(predicted["mean"] != given)}
        metrics |= {"predictions/spread": spread(predicted["mean"], method.task.classes)}
        if soft is not None:
            metrics |= {"labels/differ": _share(soft != given), "labels/spread": spread(soft, method.task.classes)}
        if self.true_label is None:
            return metrics
        true = self.true_label[index]
        known = true >= 0
        metrics["given/accuracy"] = _share((given == true)[known])
        metrics["predictions/accuracy"] = _share((predicted["mean"] == true)[known])
        metrics["predictions/accuracy_last"] = _share((predicted["last"] == true)[known])
        if soft is not None:
            metrics["labels/accuracy"] = _share((soft == true)[known])
        return metrics

    def _examined(self) -> Tensor:
        """The index of this rank's training samples whose labels are evaluated. In a very large data set these are a
        random subset, always the same, so that evaluation has a bounded cost."""
        index = self.data.train.index
        if len(index) <= EXAMINED:
            return self.data.own()
        drawn = torch.randint(len(index), (EXAMINED,), generator=generator(self.data.seed, "examined"))
        index = index[drawn.unique()]
        return index[index % self.data.ranks == self.data.rank]

    def right(self, labels: Tensor) -> float | None:
        """The accuracy of these labels of the training samples, over those whose true label is known."""
        if self.true_label is None:
            return None
        true = self.true_label[self.data.train.index]
        return _share((labels == true)[true >= 0])

    def per_class(self) -> list[float] | None:
        """Accuracy of each class in the last test; NaN for a class without test samples."""
        if self.confusion is None:
            return None
        return [float(v) for v in self.confusion.diagonal() / self.confusion.sum(1)]


def predictions(method: Method, data: Splits, samples: Samples) -> Tensor:
    """(samples, classes) log-probabilities in evaluation mode, on the CPU; several processes share the work."""
    if ranks() == 1:
        return _predicted(method, data, samples)
    # At least one each: with fewer samples than ranks, some are predicted twice and dropped once.
    share = -(-len(samples) // ranks())
    own = (torch.arange(share) + rank() * share).clamp(max=len(samples) - 1)
    return gathered(_predicted(method, data, samples.at(own)))[: len(samples)]


def _predicted(method: Method, data: Splits, samples: Samples) -> Tensor:
    with evaluating(method), method.computing():
        return torch.cat([method.predict(batch.inputs).cpu() for batch in data.in_order(samples)])


def scores(log_probs: Tensor, label: Tensor, bins: int = 15) -> dict[str, float]:
    """Accuracy, its mean over classes, mean loss, and expected calibration error."""
    predicted = log_probs.argmax(1)
    right = (predicted == label).double()
    counts = torch.bincount(label, minlength=log_probs.shape[1]).double()
    hits = torch.zeros_like(counts).index_add_(0, label, right)
    present = counts > 0
    return {
        "accuracy": float(right.mean()),
        "macro_accuracy": float((hits[present] / counts[present]).mean()),
        "loss": float(-log_probs.gather(1, label.unsqueeze(1)).double().mean()),
        "calibration_error": calibration_error(log_probs, right, bins),
    }


def calibration_error(log_probs: Tensor, right: Tensor, bins: int = 15) -> float:
    """Mean gap between confidence and accuracy over equal-width bins of confidence, weighted by their size."""
    confidence = log_probs.max(1).values.double().exp().clamp(max=1)
    place = (confidence * bins).long().clamp(max=bins - 1)
    gap = torch.zeros(bins, dtype=torch.float64).index_add_(0, place, confidence - right)
    return float(gap.abs().sum() / len(right))


def confusion_matrix(predicted: Tensor, label: Tensor, classes: int) -> Tensor:
    """(classes, classes) counts: rows true, columns predicted."""
    return torch.bincount(label * classes + predicted, minlength=classes**2).view(classes, classes).double()


def spread(labels: Tensor, classes: int) -> float:
    """The effective number of classes in use: exp of the entropy of their frequencies."""
    share = torch.bincount(labels, minlength=classes).double() / max(len(labels), 1)
    return float((-(share * share.clamp_min(1e-300).log()).sum()).exp())


def _argmax(table: SampleTable, index: Tensor) -> Tensor:
    return torch.cat([table[piece].argmax(1).cpu() for piece in pieces_of(index, table.columns[0])])


def _table_argmax(method: Method, index: Tensor) -> Tensor | None:
    parts = []
    for piece in pieces_of(index.to(method.task.device), method.task.classes):
        soft = method.soft_labels(piece)
        if soft is None:
            return None
        parts.append(soft.argmax(1).cpu())
    return torch.cat(parts)


def _share(mask: Tensor) -> float:
    return float(mask.double().mean()) if len(mask) else float("nan")
