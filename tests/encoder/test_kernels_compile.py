"""Kernels compile for GPUs on any machine; Triton's interpreter accepts more than its compiler."""

import pytest

triton = pytest.importorskip("triton", reason="the GPU kernels need Triton, which is not there")

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from eqkin.learning import kernels  # noqa: E402

HOPPER = GPUTarget("cuda", 90, 32)


def compiled(kernel, constants, **types):
    """Return the machine code of a kernel."""
    places = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    signature = types | dict.fromkeys(constants, "constexpr")
    source = ASTSource(fn=kernel, signature={n: signature[n] for n in kernel.arg_names}, constexprs=places)
    return triton.compile(source, target=HOPPER, options={"enable_fp_fusion": True}).asm["ptx"]


@pytest.mark.parametrize(
    ("gated", "affine", "rectify"),
    [(False, False, True), (False, False, False), (True, False, False), (True, True, False)],
)
def test_neighbour_sum_kernel_compiles(gated, affine, rectify):
    constants = {"GATED": gated, "AFFINE": affine, "RECTIFY": rectify, "CHILDREN": 2, "COLUMNS": 512}
    pointers = dict.fromkeys(("x", "gate", "out"), "*bf16") | dict.fromkeys(("shifts", "slopes"), "*fp32")
    structure = dict.fromkeys(("parent", "first_child", "n_children"), "*i32")
    assert compiled(kernels._neighbour_sum_kernel, constants, **pointers, **structure, width="i32")


def test_column_moments_kernel_compiles():
    constants = {"ROWS": 64, "STEPS": 8, "COLUMNS": 64}
    assert compiled(
        kernels._column_moments_kernel, constants, x="*bf16", sums="*fp32", squares="*fp32", nodes="i32", width="i32"
    )


@pytest.mark.parametrize("backwards", [False, True])
def test_neighbour_mix_kernel_compiles(backwards):
    constants = {"BACKWARDS": backwards, "NODES": 4, "CHILDREN": 8, "COLUMNS": 512}
    structure = dict.fromkeys(("parent", "first_child", "n_children"), "*i32")
    pointers = {"x": "*bf16", "terms": "*fp32", "out": "*bf16"}
    assert compiled(kernels._neighbour_mix_kernel, constants, **pointers, **structure, nodes="i32", width="i32")


def test_term_products_and_segment_moments_kernels_compile():
    structure = dict.fromkeys(("parent", "n_children"), "*i32")
    pointers = {"back": "*bf16", "x": "*bf16", "out": "*fp32"}
    constants = {"NODES": 16, "STEPS": 16, "COLUMNS": 64}
    assert compiled(kernels._term_products_kernel, constants, **pointers, **structure, nodes="i32", width="i32")
    pointers = {"x": "*bf16", "offsets": "*i32", "means": "*fp32", "squares": "*fp32"}
    assert compiled(kernels._segment_moments_kernel, {"ROWS": 32, "COLUMNS": 64}, **pointers, width="i32")


def test_compose_kernel_compiles():
    draws = dict.fromkeys(("flips", "one", "other"), "*i64")
    assert compiled(
        kernels._compose_kernel, {"CHARACTERS": 192, "BLOCK": 256}, **draws, new="*u8", old="*u8", most="i32"
    )
