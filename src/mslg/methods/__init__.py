"""Methods by name. Each entry names a class by its import path, so that listing them imports no torch."""

from __future__ import annotations

from ..registry import Entry, Registry

METHODS = Registry(
    "method",
    {
        "mslg": Entry(
            "mslg.methods.mslg.method:MSLG", "soft labels by a meta-gradient on clean samples", ("clean set",)
        ),
        "cross-fitted": Entry(
            "mslg.methods.cross_fitted.method:CrossFitted",
            "soft labels from networks that have not seen the given ones, then a meta-gradient",
            ("clean set",),
        ),
        "metalabelnet": Entry(
            "mslg.methods.metalabelnet:MetaLabelNet", "a linear layer maps features to soft labels", ("clean set",)
        ),
        "mlc": Entry("mslg.methods.mlc:MLC", "a network corrects labels by features and given label", ("clean set",)),
        "emlc": Entry(
            "mslg.methods.emlc:EMLC", "a teacher keeps the given label or replaces it by its prediction", ("clean set",)
        ),
        "joint-optimization": Entry(
            "mslg.methods.joint_optimization:JointOptimization",
            "labels follow averaged predictions; then a restart",
        ),
        "mlnt": Entry("mslg.methods.mlnt:MLNT", "agree with a teacher after a step on synthetic wrong labels"),
        "pencil": Entry("mslg.methods.pencil:Pencil", "label logits and network learn from one loss"),
        "meta-weight-net": Entry(
            "mslg.methods.meta_weight_net:MetaWeightNet",
            "a small network weights samples by their loss",
            ("clean set",),
        ),
        "l2rw": Entry(
            "mslg.methods.l2rw:LearningToReweight", "samples weighted by their effect on the clean loss", ("clean set",)
        ),
        "cross-entropy": Entry("mslg.methods.cross_entropy:CrossEntropy", "the given labels as they are"),
        "generalized-ce": Entry(
            "mslg.methods.generalized_ce:GeneralizedCE", "between cross entropy and absolute error"
        ),
        "truncated-gce": Entry(
            "mslg.methods.generalized_ce:TruncatedGCE", "generalized cross entropy that drops large losses"
        ),
        "bootstrap": Entry("mslg.methods.bootstrap:Bootstrap", "the given label mixed with the prediction"),
        "symmetric-ce": Entry("mslg.methods.symmetric_ce:SymmetricCE", "cross entropy plus its reverse"),
        "co-teaching": Entry(
            "mslg.methods.co_teaching:CoTeaching", "two networks choose small losses for each other", ("noise rate",)
        ),
        "forward": Entry(
            "mslg.methods.forward:ForwardCorrection",
            "predictions passed through the transition matrix",
            ("transition matrix",),
        ),
        "elr": Entry("mslg.methods.elr:ELR", "a pull towards each sample's early predictions"),
        "dividemix": Entry(
            "mslg.methods.dividemix:DivideMix", "small losses are labelled samples, large ones unlabelled: MixMatch"
        ),
        "dmlp": Entry(
            "mslg.methods.dmlp:DMLP", "labels learned through the closed-form head on frozen features", ("clean set",)
        ),
        "clean-only": Entry("mslg.methods.clean_only:CleanOnly", "control: the clean samples alone", ("clean set",)),
        "noisy-plus-clean": Entry(
            "mslg.methods.noisy_plus_clean:NoisyPlusClean", "control: noisy and clean samples together", ("clean set",)
        ),
        "noisy-then-clean": Entry(
            "mslg.methods.noisy_then_clean:NoisyThenClean", "control: noisy samples, then clean ones", ("clean set",)
        ),
        "gold-correction": Entry(
            "mslg.methods.gold_correction:GoldCorrection",
            "control: forward correction with a matrix from clean samples, plus these",
            ("clean set",),
        ),
    },
    group="mslg.methods",
    option="method=, --method",
    forms="package.module:Class",
    base="mslg:Method",
)
