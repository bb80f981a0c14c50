"""Label noise by name. A kind takes labels, a rate and a generator, and returns new labels with what was done.

What a kind needs beside the labels: "inputs" (or features), "probabilities" of a network for every sample and class,
a "transition" or a "confusion" matrix.
"""

from __future__ import annotations

from ..registry import Entry, Registry

NOISES = Registry(
    "noise",
    {
        "uniform": Entry("mslg.noise.uniform:uniform", "to every other class equally often"),
        "pair": Entry("mslg.noise.pair:pair", "to the next class"),
        "class-map": Entry("mslg.noise.class_map:class_map", "to the look-alike of the class, as truck to automobile"),
        "matrix": Entry("mslg.noise.matrix:matrix", "by any transition matrix", ("transition",)),
        "confusion": Entry(
            "mslg.noise.confusion:confusion", "to the classes that a classifier confuses it with", ("confusion",)
        ),
        "feature-dependent": Entry(
            "mslg.noise.feature_dependent:feature_dependent",
            "samples that a network finds hardest, to the class it takes them for",
            ("inputs",),
        ),
        "feature-dependent-released": Entry(
            "mslg.noise.feature_dependent_released:feature_dependent_released",
            "as published, ties to the last class included",
            ("probabilities",),
        ),
        "locally-concentrated": Entry(
            "mslg.noise.locally_concentrated:locally_concentrated",
            "whole clusters of a class, each to one class",
            ("inputs",),
        ),
        "instance-dependent": Entry(
            "mslg.noise.instance_dependent:instance_dependent",
            "to a class chosen by a random view of the input",
            ("inputs",),
        ),
    },
    group="mslg.noises",
    option="noise=, --noise",
    forms="package.module:function",
)
