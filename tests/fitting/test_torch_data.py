"""Data as PyTorch users have it: loaders with their options, items of every layout, streams; and how often each is
read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    SubsetRandomSampler,
    TensorDataset,
)

import mslg
from tests.support.blobs import blobs, small_network

DATA = blobs()
X, GIVEN = torch.as_tensor(DATA.x), torch.as_tensor(DATA.given)
CLEAN = (DATA.clean_x, DATA.clean_y)
QUICK: dict[str, Any] = {"epochs": 2, "batch_size": 32, "progress": False, "device": "cpu", "method": "cross-entropy"}


def fit(noisy: Any, clean: Any = None, network: Any = small_network, **more: Any) -> mslg.Result:
    return mslg.fit(network, noisy, clean, **{**QUICK, **more})


EXPECTED = fit((X, GIVEN)).history["train/loss"].tolist()


class Items(Dataset[Any]):
    """Items of any layout, and how often each was read."""

    def __init__(self, make: Any, count: int = len(X)) -> None:
        self.make, self.count, self.reads = make, count, Counter[int]()

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, place: int) -> Any:
        self.reads[place] += 1
        return self.make(place)


class WithMask(nn.Module):
    """Two inputs by position or by name."""

    def __init__(self) -> None:
        super().__init__()
        self.body = small_network()

    def forward(self, a: Tensor, mask: Tensor) -> Tensor:
        logits: Tensor = self.body(a * mask)
        return logits


MASK = torch.ones(2)
LAYOUTS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "x, y": (lambda i: (X[i], int(GIVEN[i])), small_network, {}),
    "x, y, weight": (lambda i: (X[i], GIVEN[i], 0.5), small_network, {}),
    "a, mask, y": (lambda i: (X[i], MASK, GIVEN[i]), WithMask, {}),
    "y, a, mask": (lambda i: (GIVEN[i], X[i], MASK), WithMask, {"label": 0}),
    "dict with labels": (lambda i: {"a": X[i], "mask": MASK, "labels": int(GIVEN[i])}, WithMask, {}),
    "dict of lists": (
        lambda i: {"a": X[i].tolist(), "mask": [1.0, 1.0], "labels": int(GIVEN[i]), "text": "no input"},
        WithMask,
        {},
    ),
    "dict, label named": (lambda i: {"a": X[i], "mask": MASK, "kind": GIVEN[i]}, WithMask, {"label": "kind"}),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_items_of_every_layout_give_the_run_of_arrays(layout: str) -> None:
    make, network, options = LAYOUTS[layout]
    assert fit(Items(make), network=network, **options).history["train/loss"].tolist() == EXPECTED


def test_inputs_and_labels_may_come_apart() -> None:
    unlabelled = Items(lambda i: X[i])
    assert fit((unlabelled, GIVEN)).history["train/loss"].tolist() == EXPECTED


def test_errors_say_which_part_could_be_the_label() -> None:
    with pytest.raises(
        TypeError, match=r"no part of an item .* Tensor\(2,\), Tensor\(2,\); say which part is with label="
    ):
        fit(Items(lambda i: (X[i], MASK)))
    with pytest.raises(ValueError, match=r"the label of an item has the shape \(2,\).*say which with label="):
        fit(Items(lambda i: (X[i], MASK)), label=1)
    with pytest.raises(ValueError, match="no key of an item of the noisy set is a usual name of its label: a, kind"):
        fit(Items(lambda i: {"a": X[i], "kind": 1}))
    with pytest.raises(ValueError, match=r"label is 5, and the items of the noisy set have 2 parts; .* -2 to 1"):
        fit(Items(lambda i: (X[i], GIVEN[i])), label=5)


class Lengths(nn.Module):
    """Sequences of any length."""

    def __init__(self) -> None:
        super().__init__()
        self.body = small_network()

    def forward(self, a: Tensor, mask: Tensor) -> Tensor:
        logits: Tensor = self.body((a * mask.unsqueeze(2)).sum(1))
        return logits


def padded(items: list[tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
    """Sequences of different lengths, padded; with the labels, as a collate function of Hugging Face returns them."""
    sequences = nn.utils.rnn.pad_sequence([a for a, _ in items], batch_first=True)
    mask = nn.utils.rnn.pad_sequence([torch.ones(len(a)) for a, _ in items], batch_first=True)
    return {"a": sequences, "mask": mask, "labels": torch.stack([y for _, y in items])}


def sequence(place: int) -> tuple[Tensor, Tensor]:
    """The sum of a sequence is the input."""
    length = 1 + place % 3
    return X[place].repeat(length, 1) / length, GIVEN[place]


def test_variable_lengths_need_a_collate_function_and_have_one(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r'cannot be stacked .* \(1, 2\), \(2, 2\).*; .*loader={"collate_fn": pad}'):
        fit(Items(sequence), network=Lengths)
    result = fit(Items(sequence), network=Lengths, loader={"collate_fn": padded}, output=tmp_path)
    assert result.history["train/loss"].tolist() == pytest.approx(EXPECTED, rel=1e-4)
    assert result.predict(Items(sequence, 7)).shape == (7,)


class Shaken(Dataset[Any]):
    """A random transform."""

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, place: int) -> tuple[Tensor, Tensor]:
        return X[place] + 0.1 * torch.randn(2), GIVEN[place]


def test_workers_change_nothing_but_the_time() -> None:
    expected = fit(Shaken()).history["train/loss"].tolist()
    assert fit(Shaken(), loader={"num_workers": 2}).history["train/loss"].tolist() == expected
    with_loader = fit(DataLoader(Shaken(), batch_size=32, num_workers=1, pin_memory=False, shuffle=True))
    assert with_loader.history["train/loss"].tolist() == expected
    assert len(set(expected)) == 2


def test_a_loader_brings_its_batch_size_and_its_choice_of_samples() -> None:
    settings = {key: value for key, value in QUICK.items() if key != "batch_size"}
    half = DataLoader(TensorDataset(X, GIVEN), batch_size=16, sampler=SubsetRandomSampler(range(120)))
    result = mslg.fit(small_network, half, **settings)
    assert len(result.labels) == 120
    assert result.method.task.batch_size == 16
    own = DataLoader(TensorDataset(X, GIVEN), sampler=BatchSampler(range(240), 2, drop_last=False))
    with pytest.raises(ValueError, match="has a BatchSampler, and the order of batches is the run's own"):
        fit(own)
    with pytest.raises(ValueError, match="unknown option of loader 'batch_size'"):
        fit(TensorDataset(X, GIVEN), loader={"batch_size": 3})


def test_classes_may_be_named() -> None:
    names = ["north", "east", "south", "west", "nowhere"]

    def network() -> nn.Module:
        return nn.Linear(2, 5)

    result = fit((X, GIVEN), CLEAN, network, classes=names)
    assert result.classes == tuple(names)
    assert result.labels["given_label"].tolist() == [names[number] for number in GIVEN.tolist()]


class Stream(IterableDataset[Any]):
    """Samples with names, in an order of its own."""

    def __init__(self, order: Any) -> None:
        self.order, self.reads = order, Counter[int]()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for place in self.order:
            self.reads[place] += 1
            yield {"key": f"s{place:04d}", "a": X[place], "mask": MASK, "label": int(GIVEN[place])}


def test_a_stream_is_read_once_and_may_come_in_any_order(tmp_path: Path) -> None:
    order = np.random.default_rng(0).permutation(len(X)).tolist()
    stream = Stream(order)
    result = fit(stream, network=WithMask, key="key", output=tmp_path)
    assert set(stream.reads.values()) == {1}
    assert result.history["train/loss"].tolist() == EXPECTED
    assert result.labels["id"].tolist() == [f"s{place:04d}" for place in range(len(X))]
    again = fit(Stream(range(len(X))), network=WithMask, key="key", output=tmp_path, resume=True)
    assert again.history["train/loss"].tolist() == EXPECTED
    with pytest.raises(ValueError, match="key is 'name', and an item of the noisy set has key, a, mask, label"):
        fit(stream, network=WithMask, key="name")
    with pytest.raises(ValueError, match="2 different ids for 3 samples"):
        fit(Stream([0, 3, 3]), network=WithMask, key="key")


@pytest.mark.parametrize("epochs", [1, 3])
def test_every_item_is_read_once_for_its_label_once_an_epoch_and_once_at_the_end(epochs: int) -> None:
    items = Items(lambda i: (X[i], GIVEN[i]))
    fit(items, epochs=epochs)
    reads = Counter(items.reads.values())
    # One batch more is timed for the estimate, and up to 16 check the network and identify the data.
    assert reads[epochs + 2] >= len(X) - QUICK["batch_size"] - 16
    assert reads[epochs + 2] + reads[epochs + 3] >= len(X) - 8
    named = Items(lambda i: (X[i], GIVEN[i]))
    named.targets = GIVEN  # type: ignore[attr-defined]
    fit(named, epochs=epochs)
    assert min(named.reads.values()) == epochs + 1


@pytest.mark.parametrize("epochs", [4, 6])
def test_the_default_reads_every_item_once_more_after_each_of_its_first_two_stages(epochs: int) -> None:
    """And, of few vectors, every one to find out whether networks have memorised its label."""
    items = Items(lambda i: (X[i], GIVEN[i]))
    items.targets = GIVEN  # type: ignore[attr-defined]
    fit(items, CLEAN, epochs=epochs, method="cross-fitted")
    reads = Counter(items.reads.values())
    assert min(reads) == epochs + 1 + 3
    # Less those that the checks of the network and of mixup look at, and the clean ones.
    assert reads[epochs + 4] >= len(X) - QUICK["batch_size"] - 32


class Named(nn.Module):
    """Sequences by name; whatever else an item has is none of its arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.body = Lengths()

    def forward(self, a: Tensor, mask: Tensor) -> Tensor:
        logits: Tensor = self.body(a, mask)
        return logits


def named_item(place: int) -> dict[str, Any]:
    a, label = sequence(place)
    return {"a": a, "kind": label}


def pad_named(items: list[dict[str, Any]]) -> dict[str, Tensor]:
    found = padded([(item["a"], item["kind"]) for item in items])
    return {"a": found["a"], "mask": found["mask"], "kind": found["labels"]}


def test_a_loaded_run_takes_loaders_and_their_options_too(tmp_path: Path) -> None:
    pad = {"collate_fn": pad_named}
    fitted = fit(Items(named_item), network=Named, label="kind", loader=pad, output=tmp_path)
    expected = fitted.predict_proba(Items(named_item, 40))
    loaded = mslg.load_run(tmp_path, Named)
    with pytest.raises(ValueError, match="pass a collate function that pads them: loader="):
        loaded.predict(Items(lambda i: {**named_item(i), "mask": torch.ones(2)}, 40))
    assert (loaded.predict_proba(Items(named_item, 40), loader=pad) == expected).all()
    assert (loaded.predict_proba(DataLoader(Items(named_item, 40), 7, collate_fn=pad_named)) == expected).all()
    assert (
        fitted.predict(DataLoader(Items(named_item, 40), 7)) == loaded.predict(Items(named_item, 40), loader=pad)
    ).all()


def test_hugging_face_data_sets_are_taken_as_they_are() -> None:
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    names = datasets.ClassLabel(names=["north", "east", "south", "west"])
    kinds = {"a": datasets.Sequence(datasets.Value("float32")), "mask": datasets.Sequence(datasets.Value("float32"))}
    rows = datasets.Dataset.from_dict(
        {"a": DATA.x.tolist(), "mask": [[1.0, 1.0]] * len(X), "labels": DATA.given.tolist()},
        features=datasets.Features({**kinds, "labels": names}),
    )
    result = fit(rows, network=WithMask)
    assert result.history["train/loss"].tolist() == EXPECTED
    assert result.classes == ("north", "east", "south", "west")
    assert fit(rows.with_format("torch"), network=WithMask).history["train/loss"].tolist() == EXPECTED
    columns = datasets.Dataset.from_dict({"p": DATA.x[:, 0], "q": DATA.x[:, 1], "kind": DATA.given})
    assert fit(columns, label="kind").history["train/loss"].tolist() == EXPECTED
    texts = datasets.Dataset.from_dict({"text": ["good day", "bad night"] * 20, "label": [0, 1] * 20})
    found = fit(texts, network=lambda: nn.Linear(4, 2), epochs=20, learning_rate=1.0, batch_size=8)
    assert found.predict(["such a bad night", "a good day"]).tolist() == ["1", "0"]
