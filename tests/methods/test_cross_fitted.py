"""Cross-fitted labels: folds, posterior, label step, and that it learns."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor, nn

from mslg.data.batch import Batch
from mslg.data.samples import Samples
from mslg.data.splits import Splits
from mslg.data.stores import TensorStore
from mslg.methods.cross_fitted import estimates, mixing, ridge
from mslg.methods.cross_fitted import method as method_module
from mslg.methods.cross_fitted.class_shares import clean_shift, noisy_shift
from mslg.methods.cross_fitted.estimates import (
    counted,
    evidence_of_shift,
    expectation_maximisation,
    first_matrix,
    stacked,
)
from mslg.methods.cross_fitted.fold_networks import stratified_folds
from mslg.methods.cross_fitted.given_labels import GivenLabels
from mslg.methods.cross_fitted.method import CrossFitted
from mslg.methods.cross_fitted.outside_folds import OutsideFolds
from mslg.methods.cross_fitted.refinement import (
    AGREEMENT,
    agreement,
    doubted,
    haste_of,
    matching_exponent,
    needed,
    ramp,
    refined,
    weight_at,
)
from mslg.methods.cross_fitted.stages import LEAST_STEPS, in_cycle, raise_weight_decay, repeats
from mslg.noise.transition_matrix import count, pool, smoothed_by_best_prior
from mslg.training.method import Task
from mslg.training.stacking import fit_weights, floored
from tests.support.blobs import blobs
from tests.support.method_problems import accuracy, check_resume, problem
from tests.support.method_problems import run as train_all

DATA = blobs()
EPOCHS = 6


def built(**settings: Any) -> tuple[CrossFitted, Splits]:
    task, data = problem(epochs=EPOCHS)
    return CrossFitted(task, **settings), data


def test_folds_are_even_in_every_class() -> None:
    label = torch.tensor([0] * 7 + [1] * 9 + [2] * 4)
    fold = stratified_folds(label, 4, seed=3)
    for number in range(3):
        counts = torch.bincount(fold[label == number], minlength=4)
        assert counts.max() - counts.min() <= 1
    assert torch.equal(fold, stratified_folds(label, 4, seed=3))
    assert not torch.equal(fold, stratified_folds(label, 4, seed=4))


def test_weights_are_those_of_a_fine_grid() -> None:
    random = torch.Generator().manual_seed(0)
    label = torch.randint(3, (60,), generator=random)
    good = torch.randn(60, 3, generator=random) + 2 * nn.functional.one_hot(label, 3)
    bad = torch.randn(60, 3, generator=random)
    features = torch.stack([floored(each.log_softmax(1)) for each in (good, bad)])
    found = fit_weights(features, label, centre=(0.5, 0.5))

    def value(first: float, second: float) -> float:
        total = 0.0
        for row in range(60):
            mixed = [first * float(features[0, row, c]) + second * float(features[1, row, c]) for c in range(3)]
            total += mixed[int(label[row])] - float(np.log(np.exp(mixed).sum()))
        return total - (first - 0.5) ** 2 - (second - 0.5) ** 2

    grid = [(a, b) for a in np.arange(0, 3.01, 0.05) for b in np.arange(0, 1.01, 0.05)]
    best = max(grid, key=lambda point: value(*point))
    assert np.allclose(found.numpy(), best, atol=0.05)
    assert value(*found.tolist()) >= value(*best)


def test_few_samples_leave_the_weights_near_their_centre() -> None:
    features = torch.zeros(2, 1, 3, dtype=torch.float64)
    assert torch.allclose(
        fit_weights(features, torch.tensor([0]), centre=(0.3, 0.7)), torch.tensor([0.3, 0.7]).double()
    )


def test_weights_are_those_of_a_general_optimizer() -> None:
    for seed in range(6):
        random = torch.Generator().manual_seed(seed)
        label = torch.randint(4, (30,), generator=random)
        features = torch.randn(4, 30, 4, generator=random, dtype=torch.float64) * 2
        features[:2, torch.arange(30), label] += 2  # two sources know something, one nothing, one the opposite
        features[3, torch.arange(30), label] -= 2
        features = features.log_softmax(2)

        def loss(weights: np.ndarray, features: Tensor = features, label: Tensor = label) -> float:
            combined = (torch.tensor(weights)[:, None, None] * features).sum(0).log_softmax(1)
            return float(-combined[torch.arange(30), label].sum()) + 0.3 * float(((weights - 0.25) ** 2).sum())

        found = fit_weights(features, label, centre=(0.25,) * 4, ridge=0.3)
        slow = minimize(loss, np.full(4, 0.25), bounds=[(0, None)] * 4, method="L-BFGS-B", options={"ftol": 1e-14})
        assert loss(found.numpy()) <= slow.fun + 1e-9
        assert np.allclose(found.numpy(), slow.x, atol=2e-3)
        assert found[3] == 0


def test_a_clean_sample_counts_as_much_as_four_noisy_ones() -> None:
    _, data = problem(epochs=EPOCHS)
    assert data.clean is not None
    noisy = len(data.train)
    for clean, weight in ((2, 8 / noisy), (len(data.clean), min(1.0, 4 * len(data.clean) / noisy))):
        assert counted(replace(data, clean=data.clean.at(torch.arange(clean)))) == pytest.approx(weight)
    assert counted(replace(data, clean=None)) == 1


def test_a_short_last_stage_takes_several_steps_on_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    made, data = built()
    epochs, steps, start = EPOCHS - made.starts[2], data.steps(), made.starts[2]
    expected = math.ceil(LEAST_STEPS / (epochs * steps))
    assert repeats(made.task, start, steps) == expected > 1
    assert repeats(made.task, start, LEAST_STEPS) == 1
    assert repeats(replace(made.task, accumulate=2), start, steps) == 1
    taken, once = [], CrossFitted._final_step

    def noted(self: CrossFitted, batch: Batch, clean: Batch) -> Any:
        taken.append(batch)
        return once(self, batch, clean)

    monkeypatch.setattr(CrossFitted, "_final_step", noted)
    train_all(made, data)
    assert len(taken) == expected * epochs * steps


def test_weight_decay_is_raised_up_to_a_bound() -> None:
    weights = [nn.Parameter(torch.zeros(1)) for _ in range(3)]
    decays = zip(weights, (1e-4, 1e-3, 0.01), strict=True)
    optimizer = torch.optim.SGD([{"params": [weight], "weight_decay": decay} for weight, decay in decays], lr=0.1)
    raise_weight_decay(optimizer, 10.0)
    assert [group["weight_decay"] for group in optimizer.param_groups] == pytest.approx([1e-3, 5e-3, 0.01])


def test_columns_leave_each_sample_out() -> None:
    random = torch.Generator().manual_seed(1)
    verified = torch.randint(3, (40,), generator=random)
    given = torch.where(torch.rand(40, generator=random) < 0.3, (verified + 1) % 3, verified)
    matrix, columns = smoothed_by_best_prior(given, verified, 3)
    assert torch.allclose(matrix.sum(1), torch.ones(3, dtype=torch.float64))
    # The strength is recovered from the matrix itself, so that the slow version shares nothing with the fast one.
    counts, prior = count(given, verified, 3), pool(count(given, verified, 3))
    off = (counts / counts.sum(1, keepdim=True) - matrix).abs().argmax()
    row, column = divmod(int(off), 3)
    total = counts[row].sum()
    strength = total * (counts[row, column] / total - matrix[row, column]) / (matrix[row, column] - prior[row, column])
    for number in range(40):
        others = counts.clone()
        others[verified[number], given[number]] -= 1
        true, smoothed = int(verified[number]), others + strength * pool(others)
        expected = smoothed[true, given[number]] / smoothed[true].sum()
        assert torch.isclose(columns[number, true], expected.clamp_min(1e-6), rtol=1e-6)


def test_few_counts_do_not_outweigh_an_estimate_of_the_matrix() -> None:
    """Of 20 samples 16 are right by chance, where 60 % are in truth; pooling makes the estimate exact."""
    truth = torch.full((4, 4), 0.4 / 3, dtype=torch.float64).fill_diagonal_(0.6)
    estimate = truth + 0.02 * torch.tensor([[1, -1, 1, -1]]).T * torch.tensor([[0, 1, -1, 0]])
    verified = torch.arange(20) % 4
    given = torch.where(torch.arange(20) < 16, verified, (verified + 1 + torch.arange(20) % 3) % 4)
    matrix, _ = smoothed_by_best_prior(given, verified, 4, estimate)
    assert (matrix - truth).abs().max() < 0.05 < (smoothed_by_best_prior(given, verified, 4)[0] - truth).abs().max()


def test_expectation_maximisation_recovers_the_noise() -> None:
    """Predictions that are right leave nothing but counting."""
    true, given = torch.as_tensor(DATA.true), torch.as_tensor(DATA.given)
    classes = int(true.max()) + 1
    shares = torch.full((classes,), 1 / classes, dtype=torch.float64)
    certain = 0.99 * torch.eye(classes, dtype=torch.float64)[true] + 0.01 / classes
    start = torch.full((classes, classes), 1 / classes, dtype=torch.float64)
    found, _ = expectation_maximisation(lambda: [(given[:99], certain[:99]), (given[99:], certain[99:])], start, shares)
    counts = count(given, true, classes)
    assert (found - counts / counts.sum(1, keepdim=True)).abs().max() < 0.06


@pytest.mark.parametrize("shifted", [0.0, 0.4, 1.0])
def test_expectation_maximisation_is_that_of_each_sample_s_posterior(shifted: float, monkeypatch: Any) -> None:
    monkeypatch.setattr(estimates, "EM_STEPS", 1)
    random = torch.Generator().manual_seed(0)
    given = torch.randint(4, (60,), generator=random)  # in no order, which is slow but right
    probs = torch.rand(60, 4, generator=random, dtype=torch.float64).softmax(1)
    start = torch.rand(4, 4, generator=random, dtype=torch.float64).softmax(1)
    under = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
    transition, shares = start, under
    joint = torch.zeros(4, 4, dtype=torch.float64)
    for label, row in zip(given, probs, strict=True):
        posterior = row * (shares / under) ** shifted * transition[:, label]
        joint[:, label] += posterior / posterior.sum()
    expected = (joint + pool(joint)) / (joint.sum(1, keepdim=True) + 1)
    found, counted = expectation_maximisation(
        lambda: [(given[:7], probs[:7]), (given[7:], probs[7:])], start, under, shifted
    )
    assert torch.allclose(found, expected)
    assert torch.allclose(counted, (probs.sum(0) + 1) / 64)


def test_another_class_share_is_believed_as_far_as_chance_does_not_explain_it() -> None:
    """Also where predictions are biased, as those of networks of noisy labels are."""
    random = torch.Generator().manual_seed(0)
    biased = torch.full((10, 10), 0.03, dtype=torch.float64).fill_diagonal_(0.4)
    biased[:, 0] += 0.33
    true = torch.arange(6000) % 10
    believed = []
    for draw in range(30):
        chosen = true[torch.randperm(6000, generator=random)[: (20, 50, 100)[draw % 3]]]
        believed.append(evidence_of_shift(biased[chosen], biased[true].mean(0)))
    assert max(believed) < 0.3  # random draws: their shares are chance
    uneven = torch.cat([torch.zeros(900, dtype=torch.int64), torch.arange(1, 10).repeat(12)])
    balanced = torch.arange(10).repeat(30)  # drawn class by class from an uneven set
    assert evidence_of_shift(biased[balanced], biased[uneven].mean(0)) > 0.7
    sure = torch.eye(10, dtype=torch.float64)
    assert evidence_of_shift(sure[balanced], sure[uneven].mean(0)) > 0.95


def test_without_evidence_of_a_shift_the_matrix_does_not_depend_on_class_shares() -> None:
    random = torch.Generator().manual_seed(0)
    given = torch.randint(4, (400,), generator=random)
    probs = torch.rand(400, 4, generator=random, dtype=torch.float64).softmax(1)
    start = 0.6 * torch.eye(4, dtype=torch.float64) + 0.1
    several = [torch.tensor(shares, dtype=torch.float64) for shares in ([0.25] * 4, [0.4, 0.3, 0.2, 0.1])]
    for shifted, same in ((0.0, True), (1.0, False)):
        one, other = (expectation_maximisation(lambda: [(given, probs)], start, each, shifted)[0] for each in several)
        assert torch.allclose(one, other) == same


def test_fine_tuning_that_makes_networks_worse_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Tensor]] = []

    def ruin(self: CrossFitted, name: str, *_: Any) -> None:
        seen.append({key: value.clone() for key, value in self.group(name).state_dict().items()})
        for parameter in self.group(name).parameters():
            parameter.data.neg_()

    def note(self: CrossFitted, names: Any, data: Splits, **also: Any) -> None:
        seen.append({key: value.clone() for key, value in self.group(names[0]).state_dict().items()})
        predict(self, names, data, **also)

    predict = CrossFitted.predict_training
    monkeypatch.setattr(CrossFitted, "fine_tune_folds", ruin)
    monkeypatch.setattr(CrossFitted, "predict_training", note)
    train_all(*built())
    before, after = seen[:2]
    assert all(torch.equal(before[key], after[key]) for key in before)


def test_networks_of_clean_samples_that_lack_a_class_are_not_listened_to() -> None:
    random = torch.Generator().manual_seed(0)
    label = torch.arange(20) % 3  # of four classes
    logs = torch.stack([floored(torch.randn(20, 4, generator=random).log_softmax(1)) for _ in range(4)])
    logs[1] = floored((8.0 * nn.functional.one_hot(label, 4)).log_softmax(1))  # right on these, and excludes the fourth
    samples = replace(blobs_samples(label), given=None)
    weights, *_ = stacked(logs, samples, torch.arange(20) % 4, torch.eye(4, dtype=torch.float64))
    assert torch.allclose(weights, torch.tensor([0, 0, 0.5, 0.5, 1], dtype=torch.float64), atol=1e-3)
    weights, *_ = stacked(logs[..., :3], samples, torch.arange(20) % 4, torch.eye(3, dtype=torch.float64))
    assert weights[1] > 1 / 4


def test_few_pairs_that_lack_a_class_say_nothing_of_the_matrix() -> None:
    label = torch.arange(19) % 3  # of four classes
    samples = replace(blobs_samples(label), given=(label + 1) % 3)
    predicted = torch.eye(4, dtype=torch.float64)[label]
    assert torch.allclose(first_matrix(samples, predicted, 4)[:3, :3], torch.eye(3, dtype=torch.float64), atol=0.05)
    twice = samples.at(torch.arange(19).repeat(2))
    assert first_matrix(twice, predicted.repeat(2, 1), 4)[0, 1] > 0.8, "many do, although they lack one"


def test_nor_of_the_epoch_to_go_back_to() -> None:
    method, data = built()
    assert data.clean is not None
    some = (data.clean.label != 0).nonzero().flatten()[:12]
    few = replace(data, clean=data.clean.at(some), select=None, report=None)
    method.begin_epoch(0, few)
    for _ in range(2):
        for parameter in method.group("noisy").parameters():
            parameter.data.mul_(-1)
        method.keep_if_best("noisy", few)
        now, best = (method.get_submodule(f"noisy_{kind}").state_dict() for kind in ("networks", "best"))
        assert all(torch.equal(now[key], best[key]) for key in now)


def blobs_samples(label: Tensor) -> Samples:
    return Samples(TensorStore(torch.zeros(len(label), 1)), torch.arange(len(label)), label)


def test_no_network_learns_from_its_own_fold() -> None:
    """Other labels in a fold leave the network of that fold as it is, and change all others."""
    made, data = built()
    batch, clean = next(data.batches(0)), next(data.clean_batches(0))
    made.begin_epoch(0, data)
    changed = Batch(batch.index, batch.inputs, torch.where(made.fold[batch.index] == 1, 3 - batch.label, batch.label))
    weights = []
    for each in (batch, changed):
        fresh, _ = built()
        fresh.begin_epoch(0, data)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            fresh.step(each, iter([clean]))
        weights.append([torch.cat([p.flatten() for p in net.parameters()]) for net in fresh.noisy_networks])
    same = [torch.equal(*pair) for pair in zip(*weights, strict=True)]
    assert same == [number == 1 for number in range(made.folds)]


@pytest.mark.parametrize("size", [40, 3, 2])
@pytest.mark.parametrize("on_host", [True, False])
def test_networks_see_what_is_outside_their_folds(size: int, on_host: bool) -> None:
    """Losses and predictions are those of all networks on the whole batch with their own folds masked, sample by
    sample."""
    random = torch.Generator().manual_seed(size)
    folds, classes = 3, 4
    fold = torch.randint(folds, (90,), generator=random)
    index = torch.randperm(90, generator=random)[:size]
    inputs, label = torch.randn(size, 5, generator=random), torch.randint(classes, (size,), generator=random)
    batch = Batch(index, {"x": inputs}, label, index.numpy() if on_host else None)
    networks = [torch.randn(5, classes, generator=random) for _ in range(folds)]
    outside = OutsideFolds(batch, fold.numpy(), folds)
    logs = torch.cat([outside.inputs(number)["x"] @ network for number, network in enumerate(networks)]).log_softmax(1)
    total, expected = 0.0, torch.zeros(size, classes)
    for row in range(size):
        for number, network in enumerate(networks):
            if fold[index[row]] != number:
                alone = (inputs[row] @ network).log_softmax(0)
                total -= float(alone[label[row]])
                expected[row] += alone / (folds - 1)
    found = outside.mean(-logs.gather(1, outside.label[:, None]).squeeze(1))
    assert float(found) == pytest.approx(total / (size * (1 - 1 / folds)), rel=1e-5)
    assert torch.allclose(outside.together(logs), expected.log_softmax(1), atol=1e-5)
    assert all(len(rows) >= 2 for rows in outside.rows), "batch norm cannot take fewer"


def test_a_sample_is_predicted_by_the_network_of_its_fold() -> None:
    made, data = built()
    made.begin_epoch(0, data)
    calls = [0] * made.folds
    for number, network in enumerate(made.noisy_networks):
        network.register_forward_pre_hook(lambda _, inputs, n=number: calls.__setitem__(n, calls[n] + len(inputs[0])))
    made.predict_training(["noisy"], data)
    index = data.train.index
    assert calls == torch.bincount(made.fold[index], minlength=made.folds).tolist()  # and by no other
    made.noisy_networks.eval()
    with torch.no_grad():
        for batch in data.in_order():
            for place, inputs in zip(batch.index.tolist(), batch.inputs, strict=True):
                alone = made.noisy_networks[int(made.fold[place])](inputs.unsqueeze(0)).log_softmax(1)
                found = made.table_of("noisy")[torch.tensor([place])]
                assert torch.allclose(found.double(), floored(alone), atol=1e-2)


def test_the_matrix_is_the_same_however_many_predictions_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for held in (0, 2**24):
        monkeypatch.setattr("mslg.methods.cross_fitted.estimates.HELD", held)
        made, data = built()
        train_all(made, data)
        found.append(made.transition)
    assert torch.equal(*found)


@pytest.mark.parametrize("every", [1, 2])
def test_labels_move_by_the_rate_whatever_the_softmax(every: int) -> None:
    made, data = built(label_rate=0.25, label_every=every)
    train_all(made, data)
    made.scale.zero_()  # as before the first step
    before = made.table.displaced(torch.arange(len(made.task.given)))
    batch, clean = next(data.batches(0)), next(data.clean_batches(0))
    made.move_labels(batch, clean)
    change = made.table.displaced(batch.index) - before[batch.index]
    assert change.abs().amax(1).mean() == pytest.approx(0.25 * every, rel=1e-4)
    assert torch.allclose(change.sum(1), torch.zeros(len(batch.index)), atol=1e-5)


def test_label_steps_shrink_with_the_clean_gradient() -> None:
    """A network that fits the clean samples has little left to say about labels."""
    made, data = built(label_rate=0.25, label_every=1)
    train_all(made, data)
    batch, clean = next(data.batches(0)), next(data.clean_batches(0))
    moves = []
    for earlier in (0.0, 1e3):
        made.scale.fill_(earlier)
        before = made.table.displaced(batch.index)
        made.move_labels(batch, clean)
        moves.append((made.table.displaced(batch.index) - before) * made.scale)
    assert float(made.scale) == 1e3
    assert torch.allclose(*moves, rtol=1e-2, atol=1e-3)  # what is left after two additions in float32


def test_no_clean_sample_is_weighed_by_its_own_label() -> None:
    random = torch.Generator().manual_seed(0)
    logs = torch.randn(4, 40, 4, generator=random, dtype=torch.float64).log_softmax(2)
    label, fold = torch.randint(4, (40,), generator=random), torch.arange(40) % 4
    rows = []
    for other in (label, torch.where(fold == 2, (label + 1) % 4, label)):
        samples = problem()[1].clean
        assert samples is not None
        made = replace(samples, index=torch.arange(40), label=other, given=None)
        rows.append(stacked(logs, made, fold, torch.eye(4, dtype=torch.float64))[1])
    assert torch.equal(rows[0][fold == 2], rows[1][fold == 2])
    assert not torch.equal(rows[0][fold != 2], rows[1][fold != 2])


def regressed(**settings: Any) -> tuple[CrossFitted, Splits]:
    return built(folds=2, regression=True, own_weight=0.0, **settings)


def test_regressions_take_the_place_of_networks_and_of_their_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    made, data = regressed()
    taken: list[int] = []
    step = CrossFitted.step

    def noted(self: CrossFitted, batch: Batch, clean: Any) -> Any:
        taken.append(self.epoch)
        return step(self, batch, clean)

    monkeypatch.setattr(CrossFitted, "step", noted)
    train_all(made, data)
    assert made.regressed
    assert set(taken) == set(range(made.starts[2], EPOCHS))
    fresh, _ = regressed()
    fresh.before_estimate(data)
    costs = [fresh.relative_cost(epoch) for epoch in range(EPOCHS)]
    made.before_estimate(data)
    assert costs == [made.relative_cost(epoch) for epoch in range(EPOCHS)], "the same before a run and after it"
    assert [cost > 0 for cost in costs] == [epoch >= made.starts[2] for epoch in range(EPOCHS)]
    assert float(made.weights[2]) == 0, "there are no networks of stage 2"
    true = torch.as_tensor(DATA.true)[data.train.index]
    right = (made.soft_labels(data.train.index).argmax(1) == true).float().mean()
    assert right > (data.train.label == true).float().mean() + 0.1
    assert data.unbiased_clean is not None
    assert set(made.unseen_controls(data.unbiased_clean)) == {"cross-entropy", "clean-only", "gold-correction"}


def test_no_regression_predicts_a_sample_whose_label_it_has_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other given labels in a fold leave what is predicted for it as it is."""
    monkeypatch.setattr(ridge, "PENALTIES", (1e-2,))  # how strongly, and by which features, is decided by all labels
    monkeypatch.setattr(ridge, "NARROW", 0)
    made, data = regressed()
    made.assign_clean_folds(data)
    made.estimate_by_regression(data, share=0.3)
    other, _ = regressed()
    other.task.given = other.given = torch.where(made.fold == 1, (made.given + 1) % 4, made.given)
    other.fold = made.fold
    other.set_clean_folds(made.clean_fold)
    other.estimate_by_regression(data, share=0.3)
    index = data.train.index
    same = (made.table_of("noisy")[index] == other.table_of("noisy")[index]).all(1)
    assert bool(same[made.fold[index] == 1].all())
    assert not bool(same[made.fold[index] == 0].any())


def test_nor_does_that_of_clean_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Tensor] = []
    monkeypatch.setattr(CrossFitted, "fit_weights", lambda self, data: kept.append(self.clean_predictions["clean"]))
    made, data = regressed()
    assert data.clean is not None
    made.assign_clean_folds(data)
    fold = made.clean_fold[data.clean.index]
    changed = replace(data.clean, label=torch.where(fold == 1, (data.clean.label + 1) % 4, data.clean.label))
    for clean in (data.clean, changed):
        other, _ = regressed()
        other.set_clean_folds(made.clean_fold)
        other.estimate_by_regression(replace(data, clean=clean), share=0.3)
    same = (kept[0] == kept[1]).all(1)[: len(fold)]
    assert bool(same[fold == 1].all())
    assert not bool(same[fold == 0].any())


def test_vectors_are_mixed_where_a_network_memorises_them(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = mixing.MANY - 1, mixing.MANY
    assert mixing.memorises(0.16, samples=few, gain=0.2)
    assert not mixing.memorises(0.14, samples=few, gain=0.2)
    assert not mixing.memorises(0.4, samples=many, gain=-0.01)
    assert mixing.memorises(0.4, samples=few, gain=-0.01), "chance decides what few samples seem to memorise"
    assert mixing.memorises(0.6, samples=many, gain=-0.01)
    monkeypatch.setattr(method_module, "MANY", 100)
    made, data = built()
    pictures, sparse = torch.randn(len(DATA.true), 1, 2, 2), torch.zeros(len(DATA.true), 40)
    others = [replace(data, train=replace(data.train, store=TensorStore(each))) for each in (pictures, sparse)]
    assert [mixing.kind_of_inputs(each) for each in (data, *others)] == ["vector", "mixable", "other"]
    train_all(made, data)
    made.mixup = True
    for each, by_heart, mixes, given in (
        (data, 0.3, True, False),
        (data, 0.0, False, True),
        (others[0], 0.0, True, False),
        (others[1], 0.0, False, False),
    ):
        made.by_heart, made.given_labels = by_heart, GivenLabels()
        made._begin_deployed(each)
        assert (made.mixes, bool(made.given_labels)) == (mixes, given)
    made.by_heart, made.mixup = 0.3, False
    made._begin_deployed(data)
    assert not made.mixes
    assert not made.given_labels, "labels that would be memorised are not given ones, mixed or not"


def test_the_gain_of_soft_labels_is_counted_on_samples_with_both_labels() -> None:
    random = torch.Generator().manual_seed(0)
    label, fold = torch.randint(4, (40,), generator=random), torch.arange(40) % 4
    given = torch.where(torch.arange(40) < 20, label, (label + 1) % 4)
    given[::5] = -1  # 8 samples, four of which would have had a right one
    samples = problem()[1].clean
    assert samples is not None
    made = replace(samples, index=torch.arange(40), label=label, given=given)
    for right, expected in ((1.0, 0.5), (0.0, -0.5)):
        known = torch.where(torch.rand(40, generator=random) < right, label, (label + 2) % 4)
        logs = (8.0 * nn.functional.one_hot(known, 4)).double().log_softmax(1).expand(4, -1, -1)
        weights, _, gain = stacked(logs, made, fold, torch.eye(4, dtype=torch.float64))
        if right:
            assert gain == pytest.approx(expected), "all soft labels are right, half of the given ones"
        else:
            assert gain <= 0
            assert float(weights[:4].sum()) < 0.1
    assert stacked(logs, replace(made, given=None), fold, torch.eye(4, dtype=torch.float64))[2] == 0


def test_losses_of_given_labels_by_a_loop() -> None:
    random = torch.Generator().manual_seed(0)
    log_probs = torch.randn(5, 3, generator=random, dtype=torch.float64).log_softmax(1)
    transition = torch.rand(3, 3, generator=random, dtype=torch.float64).softmax(1)
    soft, label = torch.rand(5, generator=random, dtype=torch.float64), torch.tensor([0, 2, 1, 1, 0])
    found = GivenLabels(0.3, 0.5).losses(soft, log_probs, label, transition)
    for row in range(5):
        chance = sum(float(log_probs[row, k].exp() * transition[k, label[row]]) for k in range(3))
        expected = 0.2 * float(soft[row]) - 0.3 * float(log_probs[row, label[row]]) - 0.5 * math.log(chance)
        assert float(found[row]) == pytest.approx(expected)
    assert torch.equal(GivenLabels().losses(soft, log_probs, label, transition), soft)
    assert not GivenLabels()


def test_given_labels_weigh_as_what_has_learned_from_them() -> None:
    weights = torch.tensor([0.5, 0.2, 0.2, 0.1, 9.0])
    assert tuple(GivenLabels.of(0.8, weights, right=0.6)) == pytest.approx((0.4, 0.24))
    assert tuple(GivenLabels.of(0.8, weights, right=0.25)) == pytest.approx((0.2, 0.24)), "few of them are right"
    assert tuple(GivenLabels.of(0.8, torch.zeros(5), right=1.0)) == (0, 0)


@pytest.mark.parametrize("memorised", [True, False])
def test_given_labels_are_learned_where_nothing_is_memorised(memorised: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CrossFitted, "memorised", lambda self, name, data: 0.5 if memorised else 0.0)
    few, data = built()
    train_all(few, data)
    assert not few.given_labels, "of few samples it is not certain"
    monkeypatch.setattr(method_module, "MANY", 100)
    made, data = built()
    train_all(made, data)
    assert bool(made.given_labels) != memorised
    assert made.mixes == memorised
    assert sum(made.given_labels) <= 0.8
    assert accuracy(made) > 0.75
    none, data = built(given_weight=0.0)
    train_all(none, data)
    assert not none.given_labels


@pytest.mark.parametrize("stop", [9, 33])
def test_given_labels_count_the_same_after_a_resume(stop: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(method_module, "MANY", 100)
    monkeypatch.setattr(CrossFitted, "memorised", lambda self, name, data: 0.0)
    check_resume(built, stop)


def test_what_networks_have_memorised_is_what_only_those_predict_that_have_seen_it() -> None:
    made, data = built()
    made.begin_epoch(0, data)
    index, given = data.train.index, data.train.label
    right = torch.zeros(2)
    made.eval()
    with torch.no_grad():
        outputs = [net(torch.as_tensor(DATA.x)[index]).argmax(1) for net in made.group("noisy").children()]
    for place in range(len(index)):
        fold = int(made.fold[index[place]])
        right[0] += float(outputs[fold][place] == given[place])
        right[1] += float(outputs[(fold + 1) % made.folds][place] == given[place])
    unseen, seen = (right / len(index)).tolist()
    assert made.memorised("noisy", data) == pytest.approx((seen - unseen) / (1 - unseen))


def test_images_are_predicted_by_networks_all_the_same() -> None:
    made, data = regressed()
    pictures = replace(data, train=replace(data.train, store=TensorStore(torch.zeros(len(DATA.true), 1, 2))))
    assert not made.estimate_by_regression(pictures, share=0.3)
    assert not made.regressed


def test_every_clean_sample_has_a_prediction_out_of_fold() -> None:
    made, data = built()
    train_all(made, data)
    assert data.clean is not None
    predicted = made.unseen_clean(data.clean)
    assert predicted is not None
    assert predicted.shape == (len(data.clean), made.task.classes)
    assert (predicted.argmax(1) == data.clean.label).float().mean() > 0.7
    stranger = replace(data.clean, index=data.clean.index + 10_000)
    assert made.unseen_clean(stranger) is None


def test_it_knows_how_class_shares_differ_once_it_has_estimated_them() -> None:
    made, data = built()
    assert made.class_shift() is None
    train_all(made, data)
    shift = made.class_shift()
    assert shift is not None
    assert torch.equal(shift, made.offset)


def test_without_clean_samples_those_fitted_best_take_their_place() -> None:
    task, data = problem(epochs=EPOCHS)
    data = replace(data, clean=None, select=None, report=None)
    made = CrossFitted(replace(task, pairs=None), auto_clean=True)
    train_all(made, data)
    index, true = data.train.index, torch.as_tensor(DATA.true)
    given = made.task.given
    chosen = made.excluded()
    assert chosen is not None
    assert (given[chosen] == true[chosen]).float().mean() > (given[index] == true[index]).float().mean() + 0.05
    assert (made.soft_labels(index).argmax(1) == true[index]).float().mean() > (given == true)[index].float().mean()
    assert made.label_rate == 0


def test_the_label_step_is_downhill_for_the_clean_loss() -> None:
    """Against finite differences: training a little on the moved labels lowers the clean loss more than on the old."""
    made, data = built(label_rate=0.25, label_every=1, mixup=False)
    train_all(made, data)
    made.network.eval()
    batch, clean = next(data.batches(0)), next(data.clean_batches(0))

    def after(soft: Tensor) -> float:
        loss = -(soft * made.network(batch.inputs).log_softmax(1)).sum(1).mean()
        parameters = list(made.network.parameters())
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter -= 1e-3 * gradient
            value = nn.functional.cross_entropy(made.network(clean.inputs), clean.label)
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter += 1e-3 * gradient
        return float(value)

    old = made.soft_labels(batch.index)
    made.move_labels(batch, clean)
    made.network.eval()
    assert after(made.soft_labels(batch.index)) < after(old)


def test_long_stages_have_the_schedule_several_times() -> None:
    assert [in_cycle(part / 4, 5.0) for part in range(5)] == [0, 0.25, 0.5, 0.75, 1]
    assert [round(in_cycle(part / 6, 17.0), 6) for part in range(7)] == [0, 0.5, 0, 0.25, 0.5, 0.75, 1]


def test_without_a_label_rate_and_own_predictions_labels_are_the_posterior() -> None:
    made, data = built(own_weight=0.0)
    train_all(made, data)
    index = data.train.index
    assert torch.equal(made.soft_labels(index), made.log_posterior(index).softmax(1))


def test_labels_follow_own_predictions_at_the_confidence_of_the_posterior(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixing, "MEMORISED", 0.0)
    made, data = built()
    train_all(made, data)
    index = data.train.index
    weight, exponent = (float(each) for each in made.own.now)
    posterior, own = made.log_posterior(index).softmax(1).double(), made.own.table[index].double()
    share = float((1 - posterior.gather(1, made.task.given[index, None])).mean())
    length, last = made.task.epochs - made.starts[2], made.task.epochs - 1 - made.starts[2]
    haste = haste_of(float((1 - posterior.amax(1)).mean()), length * made.steps)
    part = (last / length - (0.2 - 0.15 * haste)) / (0.4 - 0.2 * haste)
    assert agreement([(posterior, own)]) > 0.85
    assert weight == pytest.approx(0.9 * min(1, part) * min(1, share / 0.2), rel=1e-5)
    for row, expected in zip(made.soft_labels(index), zip(posterior, own, strict=True), strict=True):
        powers = [max(1e-8, (1 - weight) * q + weight * p) ** exponent for q, p in zip(*expected, strict=True)]
        assert row.tolist() == pytest.approx([float(power / sum(powers)) for power in powers], abs=1e-4)


def test_the_exponent_restores_the_entropy() -> None:
    draw = torch.Generator().manual_seed(0)
    soft, own = (torch.randn(300, 5, generator=draw, dtype=torch.float64).mul(4).softmax(1) for _ in range(2))
    exponent = matching_exponent([(soft[:100], own[:100]), (soft[100:], own[100:])], 0.7)

    def entropy(labels: Tensor) -> float:
        return float(-(labels * labels.log()).sum(1).mean())

    assert exponent > 1.2  # a mean of two is less certain than either
    assert entropy(refined(soft, own, 0.7, exponent)) == pytest.approx(entropy(soft), rel=0.08)
    assert entropy(refined(soft, own, 0.7, 1.0)) > 1.2 * entropy(soft)
    sharper = matching_exponent([(soft, own)], 0.7, kept=0.7)
    assert entropy(refined(soft, own, 0.7, sharper)) == pytest.approx(0.7 * entropy(soft), rel=0.08)
    none = torch.zeros_like(own)
    assert torch.equal(refined(soft, none, 0.7, 3.0), soft)  # nothing predicted yet


def test_own_predictions_count_late_and_where_labels_are_wrong() -> None:
    assert [weight_at(part, 0.9, 0.0) for part in (0.0, 0.2, 0.4, 0.6, 1.0)] == pytest.approx([0, 0, 0.45, 0.9, 0.9])
    assert [needed(share) for share in (0.0, 0.05, 0.2, 0.6)] == pytest.approx([0, 0.25, 1, 1])
    soft = torch.tensor([[0.9, 0.1], [0.3, 0.7], [0.5, 0.5]])
    doubt, wrong = doubted([(soft[:1], torch.tensor([0])), (soft[1:], torch.tensor([0, 1]))])
    assert (doubt, wrong) == pytest.approx((0.9 / 3, 1.3 / 3))


def test_and_earlier_where_the_posterior_is_in_doubt_and_the_network_has_had_steps_to_learn() -> None:
    assert [weight_at(part, 0.9, 1.0) for part in (0.0, 0.05, 0.15, 0.25)] == pytest.approx([0, 0, 0.45, 0.9])
    assert [haste_of(doubt, 1000) for doubt in (0.0, 0.02, 0.06, 0.1, 0.5)] == pytest.approx([0, 0, 0.5, 1, 1])
    assert haste_of(0.5, 75) == pytest.approx(0.25)


def test_and_not_before_the_network_has_learned_its_labels() -> None:
    soft = torch.tensor([[0.9, 0.1], [0.3, 0.7], [0.5, 0.5], [0.8, 0.2]])
    own = torch.tensor([[0.6, 0.4], [0.9, 0.1], [0.2, 0.8], [0.0, 0.0]])  # nothing predicted for the last
    assert agreement([(soft[:1], own[:1]), (soft[1:], own[1:])]) == pytest.approx((0.9 + 0.3 + 0.5) / (0.9 + 0.7 + 0.5))
    assert agreement([(soft, torch.zeros(4, 2))]) == 0
    assert [ramp(value, AGREEMENT) for value in (0.8, 0.85, 0.885, 0.92, 1)] == pytest.approx([0, 0, 0.5, 1, 1])


def test_clean_samples_of_a_class_that_is_far_rarer_than_they_are_do_not_make_it_likely() -> None:
    offset = torch.tensor([-4.0, -1.9, 0.0, 0.5], dtype=torch.float64)
    assert noisy_shift(offset, "between").tolist() == pytest.approx([-2.0, -0.95, 0.0, 0.25])
    # Logits of a network between both shares become those of the clean samples', beyond 2 nats only.
    assert clean_shift(offset, "between").tolist() == pytest.approx([1.0, 0.0, 0.0, 0.0])
    assert clean_shift(offset, "training").tolist() == pytest.approx([2.0, 0.0, 0.0, 0.0])
    assert clean_shift(offset, "clean").tolist() == pytest.approx([0.0, 0.0, 0.0, 0.0])


def test_labels_become_better_than_the_given_ones() -> None:
    made, data = built()
    train_all(made, data)
    index = data.train.index
    true = torch.as_tensor(DATA.true)[index]
    given = made.task.given[index]
    assert (made.soft_labels(index).argmax(1) == true).float().mean() > (given == true).float().mean() + 0.1
    assert accuracy(made) > 0.8


@pytest.mark.parametrize("stop", [3, 9, 20, 33])
def test_a_run_resumes_in_every_stage(stop: int) -> None:
    check_resume(lambda: built(label_rate=0.3), stop)


@pytest.mark.parametrize("stop", [1, 3])
def test_a_run_by_regressions_resumes(stop: int) -> None:
    check_resume(regressed, stop)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"folds": 1}, "folds is 1; a sample is predicted by networks that have not seen it: 2 or more"),
        ({"label_every": 0}, "label_every is 0; it must be 1 step or more"),
        ({"label_rate": -1.0}, "label_rate is -1.0; it must be 0 or more"),
        ({"noisy_stage": 3, "forward_stage": 3}, "a run of 6 epochs has none left for the deployed network"),
    ],
)
def test_mistakes_are_named(settings: dict[str, Any], words: str) -> None:
    task = Task(torch.tensor([0, 1] * 8), 2, lambda: nn.Linear(2, 2), epochs=EPOCHS)
    with pytest.raises(ValueError, match=words):
        CrossFitted(task, **settings)
