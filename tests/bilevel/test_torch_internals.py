"""What the engine relies on inside torch and no documentation promises. A failure here names the version of torch: read
what it changed before anything else."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import Tensor, nn

import mslg
from mslg.bilevel.rules import RULES

TORCH = f"torch {torch.__version__} has changed what mslg.bilevel relies on: "
X = torch.arange(6.0, dtype=torch.float64).reshape(2, 3)
RULES_FOLDER = Path(mslg.__file__).parent / "bilevel" / "rules"


def leaf() -> Tensor:
    return X.clone().requires_grad_()


def test_a_node_remembers_operands_under_the_names_that_rules_read() -> None:
    x, w = leaf(), torch.ones(3, 2, dtype=torch.float64, requires_grad=True)
    saved = {
        (x @ w).grad_fn: {"_saved_self": x, "_saved_mat2": w},
        x.tanh().grad_fn: {"_saved_result": x.detach().tanh()},
        x.mul(x.detach() + 1).grad_fn: {"_saved_other": X + 1},
        F.layer_norm(x, (3,)).grad_fn: {"_saved_input": X, "_saved_result1": X.mean(1, keepdim=True)},
    }
    for node, fields in saved.items():
        for name, value in fields.items():
            assert hasattr(node, name), f"{TORCH}{node.name()} has no {name}"  # type: ignore[union-attr]
            assert torch.allclose(getattr(node, name), value), f"{TORCH}{name} means something else"


def test_negative_dimensions_are_unsigned_numbers() -> None:
    node = leaf().log_softmax(-1).grad_fn
    assert node._saved_dim in (-1, (1 << 64) - 1, 1), f"{TORCH}_saved_dim is {node._saved_dim}"  # type: ignore[union-attr]


def test_a_node_knows_shape_and_type_of_its_outputs() -> None:
    (about,) = leaf().sum(1).grad_fn._input_metadata  # type: ignore[union-attr]
    assert tuple(about.shape) == (2,), f"{TORCH}_input_metadata has no shape of the output"
    assert about.dtype == torch.float64, f"{TORCH}_input_metadata has no type of the output"


def test_a_node_can_be_called_again_and_again_and_its_call_recorded() -> None:
    node = leaf().cumsum(0).grad_fn
    for _ in range(2):
        with torch.enable_grad():
            cotangent = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
            pulled = node(cotangent)  # type: ignore[misc]
        assert pulled.requires_grad, f"{TORCH}calling a node records no graph"
        (moved,) = torch.autograd.grad(pulled, cotangent, X)
        assert torch.equal(moved, X.cumsum(0)), f"{TORCH}the transpose of a node's backward is not its Jacobian"


def test_nodes_lead_to_parameters() -> None:
    x = leaf()
    ((source, number),) = (2 * x).grad_fn.next_functions[:1]  # type: ignore[union-attr]
    assert source.variable is x, f"{TORCH}a leaf's node has no variable"
    assert number == 0


@pytest.mark.parametrize("name", ["relu", "batch norm", "attention"])
def test_nodes_are_called_what_the_rules_are_registered_under(name: str) -> None:
    rows = torch.randn(2, 2, 4, 4, requires_grad=True)
    build: dict[str, tuple[Callable[[], Tensor], str]] = {
        "relu": (lambda: F.relu(rows), "ReluBackward0"),
        "batch norm": (lambda: nn.BatchNorm2d(2)(rows), "NativeBatchNormBackward0"),
        "attention": (
            lambda: F.scaled_dot_product_attention(rows, rows, rows),
            "ScaledDotProductFlashAttentionForCpuBackward0",
        ),
    }
    make, expected = build[name]
    found = make().grad_fn.name()  # type: ignore[union-attr]
    assert found == expected, f"{TORCH}{name} records {found}"
    assert found in RULES


def test_every_field_that_rules_read_exists_somewhere() -> None:
    read = {
        field for file in RULES_FOLDER.glob("*.py") for field in re.findall(r"node\.(_saved_\w+)", file.read_text())
    }
    known = set()
    for name in dir(torch._C._functions):
        known |= {field for field in dir(getattr(torch._C._functions, name)) if field.startswith("_saved_")}
    unknown = read - known
    assert not unknown, f"{TORCH}no node has {', '.join(sorted(unknown))}"
    assert len(read) > 30


def test_reentrant_checkpoints_go_through_a_function_that_can_be_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    class Noticed:
        @staticmethod
        def apply(function: Callable[..., Tensor], preserve: bool, *args: Tensor) -> Tensor:
            assert isinstance(preserve, bool), f"{TORCH}CheckpointFunction.apply takes other arguments"
            return function(*args) + 1

    monkeypatch.setattr(torch.utils.checkpoint, "CheckpointFunction", Noticed)
    found = torch.utils.checkpoint.checkpoint(torch.sin, leaf(), use_reentrant=True)
    assert torch.equal(found, X.sin() + 1), f"{TORCH}checkpoint does not call CheckpointFunction.apply"


def test_a_compiled_network_holds_the_original() -> None:
    network = nn.Linear(3, 2)
    assert torch.compile(network)._orig_mod is network, f"{TORCH}a compiled module has no _orig_mod"
    network.compile()
    assert network._compiled_call_impl is not None, f"{TORCH}compile() sets no _compiled_call_impl"
