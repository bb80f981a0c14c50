"""The direction in which the meta-gradient moves label logits."""

from __future__ import annotations

from torch import Tensor, nn

from ...bilevel import Bilevel
from ...data.batch import Batch
from ...training.losses import cross_entropy, log_probability_tangent


def label_direction(
    engine: Bilevel, network: nn.Module, batch: Batch, clean: Batch, shift: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor]:
    """The derivative of the log-probabilities of a batch along the gradient of the clean loss, centred, and this loss.

    Args:
        engine: of the network.
        network: is in training mode, and is again afterwards.
        batch: the samples whose labels move.
        clean: the clean samples.
        shift: (classes,) what turns logits into those of the noisy samples' class shares.
        weight: of each clean sample, as if their classes had the shares of the noisy ones: otherwise labels drift to
            theirs.
    """

    def clean_loss(logits: Tensor) -> Tensor:
        return (weight * cross_entropy((logits + shift).log_softmax(1), clean.label)).mean()

    network.eval()  # predictions as they are deployed: without dropout, with the statistics of all batches
    moved = engine(batch.inputs, lambda logits: logits.sum(), clean.inputs, clean_loss, look_ahead=0.0)
    network.train()
    direction = log_probability_tangent((moved.logits.detach() + shift).log_softmax(1), moved.tangent)
    return direction - direction.mean(1, keepdim=True), moved.clean_loss
