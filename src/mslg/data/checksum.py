"""CRC-32 of arrays, which an archive knows of its members already. It finds changes, not forgeries."""

from __future__ import annotations

import zlib
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # reports are written without waiting for torch
    from torch import Tensor

POLYNOMIAL = 0xEDB88320  # of CRC-32, the lowest power in the highest bit
ONE = 1 << 31


def crc_of(tensor: Tensor) -> int:
    """The CRC-32 of the values in memory."""
    return zlib.crc32(tensor.contiguous().numpy().data)


def crc_of_rest(whole: int, start: bytes, rest: int) -> int:
    """The CRC-32 of the last `rest` bytes of a text, from that of the whole and the bytes before them.

    A CRC is the remainder of the text as a polynomial, so `rest` more bytes multiply that of the start by x^(8 rest).
    """
    return whole ^ _times(_power(8 * rest), zlib.crc32(start))


def _times(left: int, right: int) -> int:
    """The product of two polynomials modulo that of CRC-32."""
    product, bit = 0, ONE
    while left:
        if left & bit:
            product ^= right
            left ^= bit
        bit >>= 1
        right = (right >> 1) ^ POLYNOMIAL if right & 1 else right >> 1
    return product


def _power(exponent: int) -> int:
    """x to a power."""
    product, position = ONE, 0
    while exponent:
        if exponent & 1:
            product = _times(_square(position), product)
        exponent >>= 1
        position += 1
    return product


@cache
def _square(position: int) -> int:
    """x^(2^position)."""
    if position == 0:
        return ONE >> 1
    half = _square(position - 1)
    return _times(half, half)
