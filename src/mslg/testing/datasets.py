"""The contract of a data set: a function that returns a `Bundle` of sources."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..data.batch import leaves
from ..data.readers.bundle import Bundle
from ..data.source import Source

Reader = Callable[[], Bundle]


def check_dataset(reader: Reader) -> None:
    """Check a data set against the contract that every built-in one fulfils.

    Args:
        reader: The function of the data set. Bind its settings with `functools.partial(reader, root=…)`.

    Raises:
        AssertionError: The contract that is broken.
    """
    for check in DATASET_CHECKS:
        check(reader)


def check_samples_are_well_formed(reader: Reader) -> None:
    """Ids are unique, labels are class numbers, train and test have the same classes."""
    bundle = reader()
    assert isinstance(bundle, Bundle), f"a data set must return a Bundle, not a {type(bundle).__name__}"
    for name, source in _parts(bundle).items():
        assert len(source) > 0, f"the {name} samples must not be empty"
        assert len(set(source.ids)) == len(source), f"the ids of the {name} samples must be unique, one per sample"
        assert len(source.store) == len(source), f"there must be as many {name} inputs as labels"
        assert source.label.dtype == torch.int64, f"the {name} labels must be int64, not {source.label.dtype}"
        inside = int(source.label.min()) >= 0 and int(source.label.max()) < len(source.classes)
        assert inside, f"the {name} labels must be from 0 to {len(source.classes) - 1}"
        assert source.classes == bundle.train.classes, f"train and {name} must have the same classes, in the same order"


def check_reading_twice_gives_the_same(reader: Reader) -> None:
    """Ids, labels and inputs are stable: a run is resumed, and decisions are applied, by id."""
    first, second = (_parts(reader()) for _ in range(2))
    assert first.keys() == second.keys(), "the same parts must be there each time"
    for name in first:
        assert tuple(first[name].ids) == tuple(second[name].ids), f"the ids of the {name} samples must be stable"
        assert torch.equal(first[name].label, second[name].label), f"the {name} labels must be stable"
        same = first[name].fingerprint() == second[name].fingerprint()
        assert same, f"the {name} inputs must be the same each time they are read"


def check_inputs_are_batched_in_order(reader: Reader) -> None:
    """Inputs are float32 of one shape, come in the order asked for, and images have values from 0 to 1."""
    bundle = reader()
    groups = [torch.tensor([0, 2, 1]), torch.tensor([3]), torch.tensor([2, 0])]
    batches = [leaves(inputs)[0] for inputs in bundle.train.store.batches(groups)]
    assert [len(batch) for batch in batches] == [3, 1, 2], "store.batches must return one batch per group of indices"
    assert torch.equal(batches[0][1], batches[2][0]), "store.batches must return samples in the order asked for"
    for batch in batches:
        assert batch.dtype == torch.float32, f"inputs must be float32, not {batch.dtype}"
    if batches[0].dim() == 4:
        low, high = float(batches[0].min()), float(batches[0].max())
        assert 0 <= low <= high <= 1, f"the values of images must be between 0 and 1; they are from {low} to {high}"
    if bundle.test is not None:
        (other,) = (leaves(inputs)[0] for inputs in bundle.test.store.batches([torch.tensor([0])]))
        assert other.shape[1:] == batches[0].shape[1:], "train and test inputs must have the same shape"


def check_no_test_sample_is_trained_on(reader: Reader) -> None:
    """No id is in both the training and the test set."""
    bundle = reader()
    if bundle.test is not None and bundle.train.ids_given and bundle.test.ids_given:
        shared = set(bundle.test.ids) & set(bundle.train.ids)
        assert not shared, f"{len(shared)} samples are both in train and in test, such as {min(shared)}"


DATASET_CHECKS: tuple[Callable[[Reader], None], ...] = (
    check_samples_are_well_formed,
    check_reading_twice_gives_the_same,
    check_inputs_are_batched_in_order,
    check_no_test_sample_is_trained_on,
)


def _parts(bundle: Bundle) -> dict[str, Source]:
    return {"train": bundle.train} | ({"test": bundle.test} if bundle.test is not None else {})
