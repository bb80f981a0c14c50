"""Rules of element-wise functions and softmax.

Their Jacobian is symmetric, so forward and backward are the same product, and the node's own backward computes the
tangent.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .registry import rule, signed

# Of numbered overloads, those whose second operand is a number, not a tensor.
_SYMMETRIC = (
    "ReluBackward0 LeakyReluBackward0 EluBackward0 CeluBackward0 GeluBackward0 SiluBackward0 MishBackward0 "
    "SoftplusBackward0 SigmoidBackward0 TanhBackward0 HardtanhBackward0 HardswishBackward0 HardsigmoidBackward0 "
    "ThresholdBackward0 LogSigmoidBackward0 AbsBackward0 ExpBackward0 Expm1Backward0 ErfBackward0 LogBackward0 "
    "Log1PBackward0 SqrtBackward0 RsqrtBackward0 ReciprocalBackward0 PowBackward0 NegBackward0 SinBackward0 "
    "CosBackward0 ClampBackward1 ClampMinBackward0 ClampMaxBackward0 MulBackward1 DivBackward1 AddBackward1 "
    "SubBackward1 RsubBackward1 NativeDropoutBackward0 MaskedFillBackward0 SoftmaxBackward0 SafeSoftmaxBackward0 "
    "CloneBackward0 AliasBackward0"
)
SYMMETRIC = _SYMMETRIC.split()


@rule(*SYMMETRIC)
def symmetric(node: Any, tangent: Tensor) -> Tensor:
    result: Any = node(tangent.to(node._input_metadata[0].dtype))
    return result[0] if isinstance(result, tuple) else result  # type: ignore[no-any-return]


@rule("LogSoftmaxBackward0")
def log_softmax(node: Any, tangent: Tensor) -> Tensor:
    probs: Tensor = node._saved_result.exp()
    return tangent - (probs * tangent).sum(signed(node._saved_dim), keepdim=True)
