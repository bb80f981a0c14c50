"""The scikit-learn API: its own checks, cross-validation, searches, pipelines, and what a fit leaves behind."""

from __future__ import annotations

import inspect
import io
import pickle
import subprocess
import sys
import warnings
from functools import partial
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

from mslg import MSLGClassifier, NoisyLabelClassifier
from mslg.methods.mslg.method import MSLG
from tests.support.blobs import blobs

DATA = blobs(samples=240, clean=40)
FAST: dict[str, Any] = {"epochs": 4, "hidden": (16,), "batch_size": 32, "random_state": 0}
NAMES = np.array(["ant", "bee", "cat", "dog"])

# One data set with the verified rows in it, where they were drawn: not in front or behind.
ORDER = np.random.default_rng(1).permutation(280)
X = np.concatenate([DATA.x, DATA.clean_x])[ORDER]
Y = np.concatenate([DATA.given, DATA.clean_y])[ORDER]
TRUE = np.concatenate([DATA.true, DATA.clean_y])[ORDER]
MASK = (np.arange(280) >= 240)[ORDER]


def quick(**settings: Any) -> MSLGClassifier:
    return MSLGClassifier(**{**FAST, **settings})


def generic(**settings: Any) -> NoisyLabelClassifier:
    return NoisyLabelClassifier(**{**FAST, **settings})


def perceptron(features: int, classes: int) -> nn.Module:
    return nn.Sequential(nn.Linear(features, 16), nn.ReLU(), nn.Linear(16, classes))


@pytest.fixture(scope="module")
def fitted() -> MSLGClassifier:
    return quick(epochs=12, prior="matrix").fit(X, Y, clean_mask=MASK)


@pytest.fixture
def routing() -> Any:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(
    [quick(), generic(method="cross-entropy")],
    expected_failed_checks=lambda estimator: {
        "check_sample_weight_equivalence_on_dense_data": "rows are drawn by weight, in the random order of batches"
    },
)
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def test_a_fit_leaves_labels_behind(fitted: MSLGClassifier) -> None:
    assert fitted.score(DATA.test_x, DATA.test_y) > 0.85
    assert fitted.predict_proba(X).shape == (280, 4)
    assert fitted.soft_labels_.shape == (280, 4)
    assert np.allclose(fitted.soft_labels_.sum(1), 1, atol=1e-5)
    assert fitted.n_iter_ == len(fitted.history_) == 12
    assert fitted.summary_["training_samples"] == 240
    assert (fitted.suggested_labels_ == TRUE).mean() > (Y == TRUE).mean() + 0.1


def test_clean_rows_are_taken_at_their_word(fitted: MSLGClassifier) -> None:
    assert np.isnan(fitted.label_quality_[MASK]).all()
    assert not np.isnan(fitted.label_quality_[~MASK]).any()
    assert (fitted.suggested_labels_[MASK] == Y[MASK]).all()
    assert (fitted.soft_labels_[MASK] == np.eye(4)[Y[MASK]]).all()


def test_most_wrong_labels_are_found(fitted: MSLGClassifier) -> None:
    issues, wrong = fitted.label_issues_, Y != TRUE
    assert list(issues) == ["row", "given_label", "predicted_label", "suggested_label", "label_quality"]
    rows, worst = issues["row"].to_numpy(), np.argsort(fitted.label_quality_)[: wrong.sum()]
    assert wrong[worst].mean() > 0.8
    assert wrong[rows].sum() > 0.7 * wrong.sum()
    assert wrong[rows].mean() > 0.8
    assert (issues["given_label"] == Y[rows]).all()
    assert (issues["suggested_label"] == fitted.suggested_labels_[rows]).all()
    assert (issues["given_label"] != issues["suggested_label"]).all()
    assert issues["label_quality"].is_monotonic_increasing
    assert (issues["label_quality"].to_numpy() == fitted.label_quality_[rows].astype(np.float32)).all()
    assert (fitted.suggested_labels_ != Y).sum() == len(rows)


def test_on_noisy_digits_it_beats_the_labels_as_they_are() -> None:
    x, true = load_digits(return_X_y=True)
    x, test_x, true, test_y = train_test_split(x, true, test_size=0.3, random_state=0, stratify=true)
    random = np.random.default_rng(0)
    given = np.where(random.random(len(true)) < 0.4, (true + random.integers(1, 10, len(true))) % 10, true)
    mask = random.permutation(len(true)) < 100
    given[mask] = true[mask]
    settings: dict[str, Any] = {"hidden": (64,), "epochs": 12, "random_state": 0}
    ours = MSLGClassifier(**settings).fit(x, given, clean_mask=mask).score(test_x, test_y)
    plain = NoisyLabelClassifier(method="cross-entropy", **settings).fit(x, given).score(test_x, test_y)
    assert ours > 0.85
    assert ours > plain + 0.02


def test_verified_samples_beside_the_data() -> None:
    beside = quick().fit(DATA.x, DATA.given, clean=(DATA.clean_x, DATA.clean_y))
    assert beside.soft_labels_.shape == (240, 4)
    assert not np.isnan(beside.label_quality_).any()
    marked = quick().fit(
        np.concatenate([DATA.x, DATA.clean_x]), np.r_[DATA.given, DATA.clean_y], clean_mask=np.arange(280) >= 240
    )
    assert beside.score(DATA.test_x, DATA.test_y) == pytest.approx(marked.score(DATA.test_x, DATA.test_y), abs=0.05)


def test_without_clean_samples_there_is_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"no clean samples, so low-loss rows of X are used .* pass clean=\(Xc, yc\)"):
        alone = quick().fit(DATA.x, DATA.given)
    assert not np.isnan(alone.label_quality_).any()  # none is verified
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asked = quick().fit(DATA.x, DATA.given, clean="auto")
        generic(method="cross-entropy").fit(DATA.x, DATA.given)
    assert (asked.predict_proba(X) == alone.predict_proba(X)).all()


def test_frames_and_class_names() -> None:
    frame = pd.DataFrame(X, columns=["width", "height"], index=np.arange(280) + 1000)
    y, mask = pd.Series(NAMES[Y], index=frame.index), pd.Series(MASK, index=frame.index)
    found = quick(epochs=12).fit(frame, y, clean_mask=mask)
    assert found.classes_.tolist() == NAMES.tolist()
    assert found.feature_names_in_.tolist() == ["width", "height"]
    assert found.score(pd.DataFrame(DATA.test_x, columns=["width", "height"]), NAMES[DATA.test_y]) > 0.85
    assert set(found.label_issues_["suggested_label"]) <= set(NAMES)
    assert (found.label_issues_["given_label"].to_numpy() == y.iloc[found.label_issues_["row"]].to_numpy()).all()
    with pytest.raises(ValueError, match="feature names should match"):
        found.predict(frame.rename(columns={"width": "depth"}))


def test_class_numbers_need_not_begin_at_zero() -> None:
    found = quick().fit(X, 10 * Y - 5, clean_mask=MASK)
    assert found.classes_.tolist() == [-5, 5, 15, 25]
    assert set(found.suggested_labels_) <= {-5, 5, 15, 25}
    assert (found.predict(X) == 10 * quick().fit(X, Y, clean_mask=MASK).predict(X) - 5).all()


def test_a_class_may_lack_clean_samples(caplog: pytest.LogCaptureFixture) -> None:
    found = quick().fit(X, NAMES[Y], clean_mask=MASK & (Y != 2))
    assert len(found.classes_) == 4
    assert "the clean set has no sample of: cat" in caplog.text


def test_columns_are_standardised() -> None:
    shifted = X * np.array([1e-3, 1e4]) + np.array([0.0, 1e7])
    first, second = (quick().fit(rows, Y, clean_mask=MASK) for rows in (X, shifted))
    assert np.allclose(first.predict_proba(X), second.predict_proba(shifted), atol=1e-2)
    constant = np.column_stack([X, np.full(280, 0.1)])
    assert np.isfinite(quick().fit(constant, Y, clean_mask=MASK).predict_proba(constant)).all()


@pytest.mark.parametrize("random_state", [3, np.random.RandomState(3)])
def test_the_same_random_state_gives_the_same(random_state: Any) -> None:
    first, second = (clone(quick(random_state=random_state)).fit(X, Y, clean_mask=MASK) for _ in range(2))
    assert (first.predict_proba(X) == second.predict_proba(X)).all()
    assert (first.soft_labels_ == second.soft_labels_).all()
    other = quick(random_state=4).fit(X, Y, clean_mask=MASK)
    assert (first.predict_proba(X) != other.predict_proba(X)).any()


def test_fitting_leaves_the_global_random_state_alone() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    quick().fit(X, Y, clean_mask=MASK)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("how", ["pickle", "joblib"])
def test_a_fitted_classifier_can_be_kept(fitted: MSLGClassifier, how: str) -> None:
    if how == "pickle":
        content = pickle.dumps(fitted)
        again = pickle.loads(content)
        assert len(content) < 100_000  # the network and the labels, not the data or the run
    else:
        file = io.BytesIO()
        joblib.dump(fitted, file)
        again = joblib.load(file)
    assert (again.predict_proba(X) == fitted.predict_proba(X)).all()
    pd.testing.assert_frame_equal(again.label_issues_, fitted.label_issues_)
    assert again.get_params() == fitted.get_params()


def test_a_clone_is_unfitted(fitted: MSLGClassifier) -> None:
    copied = clone(fitted)
    assert copied.get_params() == fitted.get_params()
    assert not hasattr(copied, "network_")


def test_cross_validation_with_a_mask(routing: None) -> None:
    folds = list(StratifiedKFold(3, shuffle=True, random_state=0).split(X, MASK))
    model = quick(epochs=10).set_fit_request(sample_weight=False).set_score_request(sample_weight=True)
    metadata = {"clean_mask": MASK, "sample_weight": MASK}  # fitted with clean rows, scored on clean rows
    scores = cross_val_score(model, X, Y, cv=folds, params=metadata)
    train, test = folds[0]
    alone = quick(epochs=10).fit(X[train], Y[train], clean_mask=MASK[train])
    assert scores[0] == pytest.approx(alone.score(X[test][MASK[test]], Y[test][MASK[test]]))
    assert scores.mean() > 0.75


@pytest.mark.slow
def test_cross_validation_in_two_processes(routing: None) -> None:
    run = partial(cross_val_score, quick(), X, Y, cv=2, params={"clean_mask": MASK})
    assert np.allclose(run(), run(n_jobs=2), atol=0.05)  # other processes may add up in another order


def test_cross_validation_with_samples_beside(routing: None) -> None:
    clean = (DATA.clean_x, DATA.clean_y)
    scores = cross_val_score(quick(), DATA.x, DATA.given, cv=2, params={"clean": clean})
    assert np.isfinite(scores).all()


def test_search_over_the_label_rate(routing: None) -> None:
    search = GridSearchCV(quick().set_fit_request(clean_mask=True), {"label_rate": [0.0, 0.5]}, cv=2)
    search.fit(X, Y, clean_mask=MASK)
    assert [each["label_rate"] for each in search.cv_results_["params"]] == [0.0, 0.5]
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert len(search.best_estimator_.label_quality_) == 280
    assert search.predict(DATA.test_x).shape == (240,)


def test_the_label_rate_reaches_the_method() -> None:
    still, moved = (quick(label_rate=rate, prior="given").fit(X, Y, clean_mask=MASK) for rate in (0.0, 5.0))
    assert (still.soft_labels_.argmax(1) == Y).all()
    assert (still.soft_labels_ != moved.soft_labels_).any()


def test_search_over_methods(routing: None) -> None:
    names = ["mslg", "noisy-plus-clean", "elr"]
    search = GridSearchCV(generic(), {"method": names}, cv=2).fit(X, Y, clean_mask=MASK)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_in_a_pipeline(routing: None) -> None:
    pipeline = make_pipeline(StandardScaler(), quick(epochs=12).set_fit_request(clean_mask=True))
    pipeline.fit(X, Y, clean_mask=MASK)
    assert pipeline.score(DATA.test_x, DATA.test_y) > 0.85
    assert np.isnan(pipeline[-1].label_quality_).sum() == MASK.sum()


def test_a_network_of_ones_own(fitted: MSLGClassifier) -> None:
    made = quick(network=perceptron, epochs=12).fit(X, Y, clean_mask=MASK)
    assert made.score(DATA.test_x, DATA.test_y) > 0.85
    assert made.network_[0].weight.dtype == torch.float32
    module = perceptron(2, 4)
    before = module[0].weight.clone()
    kept = quick(network=module).fit(X.astype(int), Y, clean_mask=MASK)  # whole numbers are numbers too
    assert torch.equal(module[0].weight, before)
    assert not torch.equal(kept.network_[0].weight, before)
    assert (pickle.loads(pickle.dumps(kept)).predict(X) == kept.predict(X)).all()
    with pytest.raises(ValueError, match=r"outputs of shape .* but the data has 4 classes"):
        quick(network=perceptron(2, 3)).fit(X, Y, clean_mask=MASK)
    with pytest.raises(TypeError, match="network is 'resnet'; pass a torch module, a function"):
        quick(network="resnet").fit(X, Y, clean_mask=MASK)


@pytest.mark.parametrize(
    ("settings", "fits"),
    [
        ({"method": "co-teaching", "noise_rate": 0.3}, {}),
        ({"method": "forward", "transition": np.eye(4) * 0.6 + 0.1}, {}),
        ({"method": "meta-weight-net"}, {"clean_mask": MASK}),
        ({"method": "mslg", "preset": "published", "method_settings": {"label_rate": 1.0}}, {"clean_mask": MASK}),
    ],
)
def test_methods_are_told_what_they_need(settings: dict[str, Any], fits: dict[str, Any]) -> None:
    found = generic(**settings).fit(X, Y, **fits)
    assert found.score(DATA.test_x, DATA.test_y) > 0.4


def test_equal_rows_may_be_clean_and_noisy() -> None:
    rounded = X.round()  # a table of few values
    assert quick().fit(rounded, Y, clean_mask=MASK).soft_labels_.shape == (280, 4)


def test_every_setting_of_mslg_can_be_searched() -> None:
    about_the_run = {"task", "auto_clean", "table_file", "table_dtype"}
    assert set(MSLGClassifier.SETTINGS) == set(inspect.signature(MSLG).parameters) - about_the_run
    assert set(MSLGClassifier.SETTINGS) < set(MSLGClassifier().get_params())


@pytest.mark.parametrize(
    ("message", "given"),
    [
        ("clean_mask has 3 entries for 280 rows of X", {"clean_mask": [True, False, True]}),
        ("clean_mask holds int64; pass bools, True for each row", {"clean_mask": MASK.astype(int)}),
        ("clean_mask marks 0 rows; at least 2 verified samples are needed", {"clean_mask": np.zeros(280, dtype=bool)}),
        ("clean_mask leaves 0 of 280 rows to learn from", {"clean_mask": np.ones(280, dtype=bool)}),
        ("clean and clean_mask are both given", {"clean_mask": MASK, "clean": (X, Y)}),
        ("clean has 1 rows; at least 2", {"clean": (X[:1] + 9, Y[:1])}),
        ("clean has 3 rows but 2 labels", {"clean": (X[:3] + 9, Y[:2])}),
        ("unknown label in clean '7'. Allowed: 0, 1, 2, 3", {"clean": (X[:3] + 9, [0, 1, 7])}),
        ("row 0 of clean is row 6 of X; .* or pass all samples in X and y", {"clean": (X[6:9], Y[6:9])}),
        ("X has 1 features, but MSLGClassifier is expecting 2", {"clean": (X[:3, :1], Y[:3])}),
        ("unknown kind of clean set 'aut'. Did you mean 'auto'", {"clean": "aut"}),
    ],
)
def test_mistakes_with_clean_samples_are_named(message: str, given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=message):
        quick().fit(X, Y, **given)


def test_other_mistakes_are_named() -> None:
    with pytest.raises(TypeError, match=r"clean is a ndarray; pass verified samples as a pair \(Xc, yc\)"):
        quick().fit(X, Y, clean=X)
    with pytest.raises(ValueError, match="l2rw cannot choose clean samples itself; pass clean="):
        generic(method="l2rw").fit(X, Y)
    with pytest.raises(ValueError, match=r"unknown method 'mslgg'. Did you mean 'mslg'"):
        generic(method="mslgg").fit(X, Y, clean_mask=MASK)
    with pytest.raises(
        ValueError, match=r"unknown setting of cross-fitted in method_settings 'labelrate'. Did you mean"
    ):
        generic(method_settings={"labelrate": 1}).fit(X, Y, clean_mask=MASK)
    with pytest.raises(ValueError, match="X has 5 rows of 4 classes, too few"):
        quick().fit(X[:5], [0, 1, 2, 3, 0])
    with pytest.raises(ValueError, match="y has one class only"):
        quick().fit(X, np.zeros(280, dtype=int))
    with pytest.raises(TypeError, match="Sparse data was passed"):
        quick().fit(csr_matrix(X), Y)


def test_a_fit_that_failed_is_no_fit() -> None:
    model = quick(epochs=1)
    with pytest.raises(ValueError, match="never reaches MSLG's label learning"):
        model.fit(X, Y, clean_mask=MASK)
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_the_estimators_are_imported_only_when_asked_for() -> None:
    code = "import sys, mslg; assert not {'torch', 'sklearn'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_rows_are_drawn_by_their_weight() -> None:
    rare = np.where(Y == 0, 20.0, 1.0)
    for model in (quick(epochs=6), generic(epochs=6, method="cross-fitted"), generic(epochs=6, method="elr")):
        plain = model.fit(X, Y, clean_mask=MASK).predict_proba(DATA.test_x)[:, 0].mean()
        weighted = model.fit(X, Y, clean_mask=MASK, sample_weight=rare)
        assert weighted.predict_proba(DATA.test_x)[:, 0].mean() > plain
    ones = quick().fit(X, Y, clean_mask=MASK, sample_weight=np.where(MASK, 0.0, 1.0)).history_["train/loss"]
    assert (
        ones.tolist() == quick().fit(X, Y, clean_mask=MASK, sample_weight=np.ones(280)).history_["train/loss"].tolist()
    )
    with pytest.raises(
        ValueError, match="clean-only does not train on the noisy samples, so sample_weights would have"
    ):
        generic(method="clean-only").fit(X, Y, clean_mask=MASK, sample_weight=rare)


def test_a_row_of_weight_0_is_not_trained_on() -> None:
    wrong = np.where(np.arange(280) < 140, (Y + 1) % 4, Y)
    kept = (np.arange(280) >= 140).astype(float)
    model = generic(method="cross-entropy", epochs=20)
    weighted = model.fit(X, wrong, sample_weight=kept)
    assert weighted.score(DATA.test_x, DATA.test_y) > model.fit(X, wrong).score(DATA.test_x, DATA.test_y) + 0.05
    assert len(weighted.suggested_labels_) == 280
