"""The one engine: look-ahead weights, clean gradient, output tangent."""

from .engine import MODES, Bilevel, Kept, Meta, Mode, Part
from .hessian import hessian_vector_product

__all__ = ["MODES", "Bilevel", "Kept", "Meta", "Mode", "Part", "hessian_vector_product"]
