"""Whether a model was asked about labels it was trained on: it then agrees with wrong ones too."""

from __future__ import annotations

import torch

from ..data.sample_table import pieces_of
from .evidence import Predictions, VerifiedSamples

# Out-of-sample probabilities of benchmarks/any_model.py reach an agreement of .91 where wrong labels follow a rule.
MOST_AGREEMENT = 0.99  # with given labels, that out-of-sample predictions reach
MOST_OF_WRONG = 0.9  # of wrong given labels that they repeat
FEWEST_WRONG = 10
MOST = 20_000  # samples that are asked about


def in_sample_warning(predictions: Predictions, verified: VerifiedSamples | None) -> str | None:
    """What is suspicious about these predictions, if anything."""
    some = torch.linspace(0, len(predictions) - 1, min(len(predictions), MOST), dtype=torch.float64).long()
    some = some[predictions.is_known(some)]
    same = [
        predictions.probs(here).argmax(1) == predictions.given[here]
        for here in pieces_of(some, len(predictions.classes))
    ]
    share = float(torch.cat(same).float().mean()) if len(some) else 0.0
    told = f"the predicted class is the given one for {100 * share:.1f} % of the samples"
    advice = (
        "a model that was trained on these labels repeats their mistakes: pass out-of-sample probabilities, as "
        'cross_val_predict(model, X, labels, method="predict_proba") makes them'
    )
    if verified is not None:
        wrong = verified.given != verified.verified
        repeated = verified.probs.argmax(1)[wrong] == verified.given[wrong]
        if len(repeated) >= FEWEST_WRONG and float(repeated.float().mean()) > MOST_OF_WRONG:
            part = f"and for {int(repeated.sum())} of {len(repeated)} whose given label was verified to be wrong"
            return f"{told}, {part}; {advice}, unless the mistakes follow a rule that any model learns"
        if len(repeated) >= FEWEST_WRONG or not torch.any(wrong):
            return None
    return f"{told}; {advice}" if share > MOST_AGREEMENT else None
