"""The one engine: look-ahead weights, clean gradient, output tangent."""

from .engine import MODES, Bilevel, Meta, Mode, last_linear
from .hessian import hessian_vector_product

__all__ = ["MODES", "Bilevel", "Meta", "Mode", "hessian_vector_product", "last_linear"]
