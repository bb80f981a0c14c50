"""Bilevel optimization: look-ahead weights, clean gradient, output tangent."""

from .engine import Bilevel, BilevelOutput, KeptGradient, MicroBatch
from .fallbacks import MODES, Mode
from .hessian import hessian_vector_product

__all__ = ["MODES", "Bilevel", "BilevelOutput", "KeptGradient", "MicroBatch", "Mode", "hessian_vector_product"]
