"""The contract checks of mslg, one test per check."""

import pytest
from mslg_example_plugin.label_smoothing import LabelSmoothing
from mslg_example_plugin.moons import moons
from mslg_example_plugin.one_way import one_way

import mslg.testing


@pytest.mark.parametrize("check", mslg.testing.METHOD_CHECKS)
def test_method(check):
    check(LabelSmoothing)


@pytest.mark.parametrize("check", mslg.testing.NOISE_CHECKS)
def test_noise(check):
    check(one_way)


@pytest.mark.parametrize("check", mslg.testing.DATASET_CHECKS)
def test_dataset(check):
    check(moons)
