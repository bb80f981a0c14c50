"""Contract checks for methods, noises and data sets: every one of this package passes them, and yours can too.

Run them all, up to the first that fails:

    from mslg.testing import check_method
    check_method(MyMethod)

or as one test per check in a repository of your own:

    @pytest.mark.parametrize("check", mslg.testing.METHOD_CHECKS)
    def test_my_method(check):
        check(MyMethod)

A check that fails raises an AssertionError that states the contract.
"""

from __future__ import annotations

from .datasets import DATASET_CHECKS, check_dataset
from .methods import METHOD_CHECKS, check_method
from .noises import NOISE_CHECKS, check_noise

__all__ = ["DATASET_CHECKS", "METHOD_CHECKS", "NOISE_CHECKS", "check_dataset", "check_method", "check_noise"]
