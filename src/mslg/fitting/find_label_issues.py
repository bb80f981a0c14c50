"""Label issues from any model's probabilities, without training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor

from ..data.open_labels import open_labels, open_verified
from ..data.readers.array_files import read_npy
from ..data.readers.probabilities import read_probabilities
from ..data.source import Source
from ..data.votes import Votes, open_votes
from ..issues.annotators import ASKED, Annotators, find_consensus
from ..issues.evidence import Evidence, Predictions, VerifiedSamples
from ..issues.flagging import Flag
from ..issues.from_probabilities import Model, Models, match_classes, predictions_of, weigh_models
from ..issues.in_sample import in_sample_warning
from ..issues.kinds import ProblemKinds, confusable_pairs, kind_columns, problem_kinds
from ..issues.label_rows import label_frame
from ..issues.posterior import FEWEST
from ..issues.questions import choose_questions
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
        annotators: where labels were votes: each annotator's matrix, and who is right how often.
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
    annotators: Annotators | None = field(repr=False, default=None)

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
                "id": self.source.ids_at(known),
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
        if self.annotators is not None:
            votes = self.annotators.votes.per_sample()[known].numpy()
            checked = checked.assign(consensus_label=verified, consensus_probability=1.0, votes=votes)
        return pd.concat([rows, checked]).sort_index()

    @cached_property
    def indices(self) -> Array:
        """Positions in the input of the flagged labels, worst first."""
        order = self.ranked.order.long()
        found: Array = self.positions[order[self.ranked.flagged[order]]].numpy()
        return found

    def ask_next(self, count: int = 50) -> pd.DataFrame:
        """Whom to ask about which samples: id, annotator, gain (nats that the vote is expected to say about the class),
        consensus_label, consensus_probability. A sample is listed once; no annotator is asked more than twice their
        share."""
        if self.annotators is None:
            raise ValueError("there are no annotators to ask: the labels were not a table of votes (annotators=True)")
        return choose_questions(self._whom_to_ask(max(ASKED, 2 * count)), count)

    def _whom_to_ask(self, samples: int) -> pd.DataFrame:
        """For the samples whose class is most uncertain the annotators whose vote would say most."""
        assert self.annotators is not None
        known = (~self.ranked.log_odds.isnan()).nonzero().flatten()
        first = self.ranked.two_likeliest[known, 0].argsort()[:samples]
        places = known[first]
        posterior = self.ranked.posterior(self.ranked.predictions.probs(places), self.ranked.predictions.given[places])
        at = self.positions[places]
        rows = self.annotators.whom_to_ask(posterior, at)
        columns = self.ranked.kinds
        back = pd.Series(places.numpy(), index=at.numpy())[rows["position"]].to_numpy()
        return rows.assign(
            id=[self.source.ids[place] for place in rows["position"]],
            consensus_label=columns["consensus_label"][back],
            consensus_probability=columns["consensus_probability"][back],
        )[["id", "annotator", "gain", "consensus_label", "consensus_probability"]]

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
            None if self.annotators is None else self._whom_to_ask(ASKED),
        )
        return write_run(found, Path(folder), force=force)


def find_label_issues(
    labels: Any,
    pred_probs: Any = None,
    *,
    verified: Any = None,
    features: Any = None,
    ids: Sequence[Any] | None = None,
    classes: Sequence[str] | None = None,
    fdr: float | None = None,
    flag: Flag = "balanced",
    root: str | Path | None = None,
    annotators: bool = False,
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
            default that of the class numbers or the sorted names. A row with NaN: no prediction. May be left out if
            there are several annotators.
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
        annotators: labels are votes of several annotators: a table, or a file of it, with the columns id, annotator and
            label, or with a row per sample and a column per annotator; or an array (samples, annotators) with −1 where
            there is no vote. The given label is then their majority.

    Returns:
        The issues: `labels` is a table with a row per sample, `statement` says how many are wrong, `save(folder)`
        makes a folder for the report and the review.
    """
    shown = read_npy(Path(features)) if isinstance(features, str | Path) else features
    votes: Votes | None = None
    if annotators:
        source, votes = open_votes(labels, ids=ids, classes=classes, features=shown)
        voted = source.classes
    else:
        source = open_labels(labels, ids=ids, classes=classes, features=shown, root=root)
    if shown is not None and len(shown) != len(source):
        raise ValueError(
            f"there are features of {len(shown)} samples for {len(source)} labels; pass one row per sample"
        )
    probabilities, models = [], [_no_model(source)]
    if pred_probs is not None:
        probabilities = read_probabilities(pred_probs)
        source, models = match_classes(source, probabilities, classes)
    elif votes is None:
        raise ValueError("there are no probabilities; pass pred_probs, or votes of several annotators")
    known = open_verified(verified, source)
    if bool((known >= 0).all()):
        raise ValueError("every label is verified; there is nothing left to find")
    together, evidence = weigh_models(models, source, known)
    unverified = (known < 0).nonzero().flatten()
    predictions = predictions_of(together, source, unverified)
    suspicious = None if votes is not None else in_sample_warning(predictions, evidence.held_out)
    about = None
    if votes is not None:
        votes = _renumbered(votes, voted, source)
        about, predictions, evidence = _of_votes(votes, source, together, predictions, known)
    ranked = rank_labels(predictions, evidence, fdr=fdr, flag=flag)
    two, mass = _two_likeliest(ranked, evidence, unverified, known)
    kinds = problem_kinds(two, mass, len(source.classes), shown, (known >= 0).nonzero().flatten().numpy())
    columns = kind_columns(kinds, unverified.numpy(), ranked.flagged.numpy(), source.ids)
    if votes is not None:
        columns |= _consensus_columns(ranked, source, votes.per_sample()[unverified])
    ranked = replace(ranked, soft_labels="posterior", kinds=columns)
    summary = _summary(ranked, source, len(unverified), kinds, about)
    if len(models) > 1:
        summary["model_weights"] = together.weights.tolist()
    warnings = [] if suspicious is None else [suspicious]
    settings = {
        "source": str(labels) if isinstance(labels, str | Path) else None,
        "models": [each.name for each in probabilities],
        "fdr": fdr,
        "flag": None if fdr is not None else flag,
    }
    return Issues(summary, source.classes, warnings, ranked, source, known, together, kinds, shown, settings, about)


def _summary(
    ranked: LabelIssues, source: Source, unverified: int, kinds: ProblemKinds, about: Annotators | None
) -> dict[str, Any]:
    errors = ranked.error_rate_summary()
    if errors["why"] is not None:
        errors["why"] = _why_unknown(len(source) - unverified)
    summary: dict[str, Any] = {
        "state": "done",
        "training_samples": unverified,
        "clean_samples": {"verified": len(source) - unverified},
        "label_errors": errors,
        "label_issues": int(ranked.flagged.sum()),
        "kinds": kinds.counts(source.label.numpy()),
        "confusable_pairs": confusable_pairs(kinds, source.classes),
    }
    if about is not None:
        summary["annotators"] = about.summary(source.classes)
    elif len(source.classes) <= SHOWN:
        summary["transition"] = ranked.posterior.transition().tolist()
    return summary


def _consensus_columns(ranked: LabelIssues, source: Source, votes: Tensor) -> dict[str, Array]:
    return {
        "consensus_label": np.array(source.classes, dtype=object)[ranked.likeliest.numpy()],
        "consensus_probability": ranked.two_likeliest[:, 0].numpy(),
        "votes": votes.numpy(),
    }


def _no_model(source: Source) -> Model:
    """All classes are as likely."""
    count = len(source.classes)
    return Model(np.broadcast_to(np.float32(1 / count), (len(source), count)))


def _of_votes(
    votes: Votes, source: Source, models: Models, predictions: Predictions, known: Tensor
) -> tuple[Annotators, Predictions, Evidence]:
    """The annotators, and what they say together with the models instead of what the models say alone."""
    found = find_consensus(votes, models(torch.arange(len(source))), known)
    place, rest = (known >= 0).nonzero().flatten(), (known < 0).nonzero().flatten()
    held_out = VerifiedSamples(found.held_out, source.label[place], known[place], torch.arange(len(place)))
    together = replace(predictions, probs=lambda places: found.probs[rest[places]], known=None, include_given=True)
    return found.annotators, together, Evidence(held_out, cross_fitted=True) if len(place) else Evidence()


def _renumbered(votes: Votes, classes: tuple[str, ...], source: Source) -> Votes:
    """The votes by class of the source, whose classes may be those of a model."""
    number = torch.tensor([source.classes.index(name) for name in classes])
    return replace(votes, label=number[votes.label], classes=len(source.classes))


def _two_likeliest(ranked: LabelIssues, evidence: Evidence, unverified: Tensor, known: Tensor) -> tuple[Array, Array]:
    """(samples, 2) the two likeliest classes of every sample, and their probabilities."""
    two = torch.empty(len(known), 2, dtype=torch.int32)
    mass = torch.empty(len(known), 2)
    two[unverified] = torch.stack([ranked.likeliest, ranked.runner_up], 1)
    mass[unverified] = ranked.two_likeliest
    if (samples := evidence.held_out) is not None:
        best = ranked.posterior(samples.probs, samples.given).topk(2, dim=1)
        two[known >= 0], mass[known >= 0] = best.indices.int(), best.values.float()
    return two.numpy(), mass.numpy()


def _why_unknown(verified: int) -> str:
    if not verified:
        return "no verified labels were passed"
    return f"only {verified} verified labels were passed, and it takes {FEWEST}"
