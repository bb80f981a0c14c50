"""What the C library does with memory that is freed during training."""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from functools import cache

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of <malloc.h>
KEPT = 2**28  # bytes of freed memory that stay with the process, at most
MAPPED = 2**26  # bytes from which on a block is a mapping of its own, which goes back to the system when it is freed


@cache
def keep_freed_memory() -> bool:
    """Have glibc reuse the memory of freed tensors: whether it will.

    By default blocks of 32 MB and more go back to the system as soon as they are freed, and whoever takes them next
    has them mapped and filled with zeros anew: a quarter of a large CNN's step. The price is a higher peak
    (docs/speed.md has both). Who sets glibc's own variables has decided otherwise.
    """
    if not sys.platform.startswith("linux") or any(
        name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ
    ):
        return False
    with suppress(OSError, AttributeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        return bool(mallopt(M_TRIM_THRESHOLD, KEPT) and mallopt(M_MMAP_THRESHOLD, MAPPED))
    return False
