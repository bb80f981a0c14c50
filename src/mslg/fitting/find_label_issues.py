"""Label issues from any model's probabilities, without training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch.nn.functional as F
from torch import Tensor

from ..data.open_labels import open_labels, open_verified
from ..data.readers.probabilities import read_probabilities
from ..data.source import Source
from ..issues.flagging import Flag
from ..issues.from_probabilities import Models, match_classes, predictions_of, weigh_models
from ..issues.in_sample import in_sample_warning
from ..issues.kinds import ProblemKinds, confusable_pairs, kind_columns, problem_kinds
from ..issues.label_rows import label_frame
from ..issues.posterior import FEWEST
from ..issues.ranked_list import LabelIssues, rank_labels
from ..issues.statement import statement
from ..runs.execute import SHOWN
from ..runs.folder import Run
from .issues_run import Found, write_run

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Issues:
    """Label issues found from a model's probabilities; print it for the statement.

    Attributes:
        summary: the numbers: "label_errors" (how many labels are wrong, how many of the listed ones), "label_issues"
            (how many are flagged), "transition", and where several models were combined their "model_weights".
        classes: the class names.
        warnings: what is suspicious about the probabilities.
        ranked: the labels that are not verified, in order: what a run's folder is written from.
        source: all samples.
        verified: (samples,) verified class numbers, −1 where unknown.
        models: what they say of every sample.
        kinds: problems of other kinds, of every sample.
        features: (samples, …) or None.
        settings: how the issues were found.
    """

    summary: dict[str, Any]
    classes: tuple[str, ...]
    warnings: list[str]
    ranked: LabelIssues = field(repr=False)
    source: Source = field(repr=False)
    verified: Tensor = field(repr=False)
    models: Models = field(repr=False)
    kinds: ProblemKinds = field(repr=False)
    features: Any = field(repr=False, default=None)
    settings: dict[str, Any] = field(repr=False, default_factory=dict)

    @cached_property
    def positions(self) -> Tensor:
        """Where the ranked samples are in the input: those without a verified label."""
        return (self.verified < 0).nonzero().flatten()

    @property
    def statement(self) -> str:
        """What can be said, in sentences."""
        told = statement(
            self.summary["label_errors"], samples=len(self.positions), flagged=self.summary["label_issues"]
        )
        return " ".join([*told, *(f"Warning: {words}." for words in self.warnings)])

    def __str__(self) -> str:
        return self.statement

    @cached_property
    def labels(self) -> pd.DataFrame:
        """One row per sample in the order of the input: id, given_label, predicted_label, is_label_issue,
        label_quality, suggested_label, soft_label, rank, kind (of problem) with its scores, and verified_label where
        any was passed. A verified sample is no longer ranked: its suggested label is the verified one."""
        rows = label_frame(self.ranked)
        rows.index = pd.Index(self.positions.numpy())
        known = (self.verified >= 0).nonzero().flatten()
        if not len(known):
            return rows
        names = np.array(self.classes, dtype=object)
        given, verified = names[self.source.label[known].numpy()], names[self.verified[known].numpy()]
        soft = F.one_hot(self.verified[known], len(self.classes)).float().numpy()
        checked = pd.DataFrame(
            {
                "id": [self.source.ids[place] for place in known.tolist()],
                "given_label": given,
                "predicted_label": names[self.models(known).argmax(1).numpy()],
                "is_label_issue": given != verified,
                "label_quality": (given == verified).astype(np.float32),
                "suggested_label": verified,
                "soft_label": pd.Series(list(soft), dtype=object),
                "rank": -1,
                "verified_label": verified,
            }
        ).set_index(known.numpy())
        return pd.concat([rows, checked]).sort_index()

    @cached_property
    def indices(self) -> Array:
        """Positions in the input of the flagged labels, worst first."""
        order = self.ranked.order.long()
        found: Array = self.positions[order[self.ranked.flagged[order]]].numpy()
        return found

    def save(self, folder: Path | str, *, force: bool = False) -> Run:
        """Write a run's folder, on which `mslg report`, `apply`, `export` and `review-next` work.

        Args:
            folder: to write to.
            force: replace a run that is there.

        Returns:
            The run.
        """
        found = Found(
            self.summary,
            self.warnings,
            self.ranked,
            self.positions,
            self.source,
            self.verified,
            self.features,
            self.settings,
        )
        return write_run(found, Path(folder), force=force)


def find_label_issues(
    labels: Any,
    pred_probs: Any,
    *,
    verified: Any = None,
    features: Any = None,
    ids: Sequence[Any] | None = None,
    classes: Sequence[str] | None = None,
    fdr: float | None = None,
    flag: Flag = "balanced",
    root: str | Path | None = None,
) -> Issues:
    """Which labels are wrong, what they should be, and how many there are: from any model's out-of-sample probabilities
    and, for a statement that can be trusted, from some samples whose labels were verified.

    Args:
        labels: (samples,) given labels, class names or numbers; a DataFrame with the column `label` (and id, path,
            text, verified_label where known); or the name of a file, folder or data set as `mslg fit` takes them.
        pred_probs: (samples, classes) probabilities by models that have not seen the label of the sample, as of
            `cross_val_predict(method="predict_proba")`; a DataFrame with a column per class; a file (.npy, .npz,
            .parquet, .csv); or several of them, as a list or dict or an array (models, samples, classes), which are
            combined by weights fitted on the verified samples. Columns without names are in the order of `classes`, by
            default that of the class numbers or the sorted names. A row with NaN: no prediction.
        verified: the verified labels of some samples, best of random ones: (samples,) with None, NaN or −1 where
            unknown; a dict or table from ids to labels; or a file of these. By default those that come with the labels.
        features: (samples, …) embeddings, or a file of them: to show similar verified samples, and to find duplicates
            and samples that belong to no class.
        ids: a unique name per sample; positions by default.
        classes: the class of each column of pred_probs.
        fdr: flag as many labels as possible while keeping the false discovery rate below this.
        flag: which labels are flagged otherwise: "balanced", as many as balance precision and recall best; "expected",
            as many as are probably wrong; "likelier", all for which another class is likelier; or a number.
        root: the folder of a named data set's files.

    Returns:
        The issues: `labels` is a table with a row per sample, `statement` says how many are wrong, `save(folder)`
        makes a folder for the report and the review.
    """
    shown = np.load(features, allow_pickle=False) if isinstance(features, str | Path) else features
    source = open_labels(labels, ids=ids, classes=classes, features=shown, root=root)
    if shown is not None and len(shown) != len(source):
        raise ValueError(
            f"there are features of {len(shown)} samples for {len(source)} labels; pass one row per sample"
        )
    probabilities = read_probabilities(pred_probs)
    source, models = match_classes(source, probabilities, classes)
    known = open_verified(verified, source)
    if bool((known >= 0).all()):
        raise ValueError("every label is verified; there is nothing left to find")
    together, evidence = weigh_models(models, source, known)
    unverified = (known < 0).nonzero().flatten()
    predictions = predictions_of(together, source, unverified)
    suspicious = in_sample_warning(predictions, evidence.held_out)
    ranked = rank_labels(predictions, evidence, fdr=fdr, flag=flag)
    ranked = replace(ranked, predictions=replace(predictions, soft_labels=ranked.posterior_of))
    kinds = problem_kinds(
        lambda places: ranked.posterior(together(places), source.label[places]),
        len(source),
        len(source.classes),
        shown,
        (known >= 0).nonzero().flatten().numpy(),
    )
    columns = kind_columns(kinds, unverified.numpy(), ranked.flagged.numpy(), source.ids)
    ranked = replace(ranked, kinds=columns)
    errors = ranked.error_rate_summary()
    if errors["why"] is not None:
        errors["why"] = _why_unknown(len(source) - len(unverified))
    summary: dict[str, Any] = {
        "state": "done",
        "training_samples": len(unverified),
        "clean_samples": {"verified": len(source) - len(unverified)},
        "label_errors": errors,
        "label_issues": int(ranked.flagged.sum()),
        "kinds": kinds.counts(source.label.numpy()),
        "confusable_pairs": confusable_pairs(kinds, source.classes),
    }
    if len(models) > 1:
        summary["model_weights"] = together.weights.tolist()
    if len(source.classes) <= SHOWN:
        summary["transition"] = ranked.posterior.transition().tolist()
    warnings = [] if suspicious is None else [suspicious]
    settings = {
        "source": str(labels) if isinstance(labels, str | Path) else None,
        "models": [each.name for each in probabilities],
        "fdr": fdr,
        "flag": None if fdr is not None else flag,
    }
    return Issues(summary, source.classes, warnings, ranked, source, known, together, kinds, shown, settings)


def _why_unknown(verified: int) -> str:
    if not verified:
        return "no verified labels were passed"
    return f"only {verified} verified labels were passed, and it takes {FEWEST}"
