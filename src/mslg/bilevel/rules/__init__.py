"""How each recorded operation propagates a tangent forward: one rule per autograd node.

A rule takes the node and the tangents of its inputs (None = zero) and returns the tangent of its output; an operation
without a rule is differentiated through its own backward. Three families of rules cover most networks:

* linear operations: the same operation on the tangent;
* operations with a symmetric Jacobian (every element-wise function, softmax): forward and backward are the same
  product, so the node's own backward computes the tangent;
* products (convolution, matrix products, normalization with a scale): the product rule, with the operands that were
  saved for the backward pass anyway.
"""

from . import arithmetic, attention, elementwise, layers, normalization, reductions, shape
from .registry import RULES, Unsupported
from .transposed import transposed_backward

__all__ = [
    "RULES",
    "Unsupported",
    "arithmetic",
    "attention",
    "elementwise",
    "layers",
    "normalization",
    "reductions",
    "shape",
    "transposed_backward",
]
