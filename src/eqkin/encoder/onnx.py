"""A network as an ONNX file, so that other languages can embed trees.

Inputs, one row per node of one or more trees, in breadth-first order, the trees one after the other:

    features   (nodes, 256) float32   how often each feature of the vocabulary occurs at the node
    position   (nodes,) int64         among its siblings, from 0
    parent     (nodes,) int64         row of the parent, of the left and of the right sibling;
    left, right                       the number of nodes where there is none
    tree       (nodes,) int64         number of the tree, from 0

Output: `embeddings` (trees, dimensions) float32. `make_inputs` computes the inputs; the vocabulary is in the metadata.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from eqkin.encoder.architecture import FEATURES, SQUARE_EPSILON
from eqkin.encoder.cpu_kernels import CHILDREN, LEFT, PARENT, RIGHT
from eqkin.encoder.model import Model
from eqkin.encoder.numpy_network import NumpyNetwork
from eqkin.errors import BadInput
from eqkin.formulas import Forest, Vocabulary
from eqkin.storage.files import write_file

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto

OPSET, IR_VERSION = 18, 10
_ONE = np.array([1])
INDEX_INPUTS = ("position", "parent", "left", "right", "tree")


def make_inputs(forest: Forest, vocabulary: Vocabulary) -> dict[str, npt.NDArray[Any]]:
    """Compute the inputs of an exported network for some trees."""
    nodes, numbers = len(forest.n_children), np.arange(len(forest.n_children))
    is_root = np.zeros(nodes, bool)
    is_root[forest.offsets[:-1]] = True
    parent, position = np.asarray(forest.compute_parent(), np.int64), np.asarray(forest.compute_position(), np.int64)
    siblings = np.where(is_root, 1, forest.n_children[np.where(is_root, 0, parent)])
    return {
        "features": vocabulary.extract_features(forest).astype(np.float32),
        "position": position,
        "parent": np.where(is_root, nodes, parent),
        "left": np.where(position > 0, numbers - 1, nodes),
        "right": np.where(position + 1 < siblings, numbers + 1, nodes),
        "tree": np.repeat(np.arange(len(forest)), forest.sizes),
    }


def export_onnx(model: Model, path: Path) -> None:
    """Write a network as an ONNX file; raises `BadInput` without the package onnx, `StorageFailed` without space."""
    try:
        import onnx
    except ImportError as error:
        raise BadInput("exporting to ONNX needs the package onnx: pip install 'eqkin[onnx]'") from error
    helper, float_type, int_type = onnx.helper, onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
    inputs = [helper.make_tensor_value_info("features", float_type, ["nodes", FEATURES])]
    inputs += [helper.make_tensor_value_info(name, int_type, ["nodes"]) for name in INDEX_INPUTS]
    outputs = [helper.make_tensor_value_info("embeddings", float_type, ["trees", model.architecture.dimensions])]
    graph = _GraphBuilder()
    graph.add_network(NumpyNetwork(model))
    made = helper.make_graph(graph.nodes, "eqkin", inputs, outputs, graph.constants)
    proto = helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    helper.set_model_props(proto, {"vocabulary": model.vocabulary.to_json(), "digest": model.digest})
    onnx.checker.check_model(proto)
    write_file(path, proto.SerializeToString())


class _GraphBuilder:
    """Collects the nodes of a graph; every method returns the name of its result."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []

    def add_network(self, network: NumpyNetwork) -> None:
        """Add the layers of a network as `NumpyNetwork` computes them, with norms folded into the weights."""
        add, is_mix, width = self.add, network.is_mix, network.width
        rates = np.repeat(10_000.0 ** (-np.arange(0, width, 2) / width), 2)[:width]
        phases = np.arange(width) % 2 * np.pi / 2  # of cosines, which are shifted sines
        angles = add("Add", add("Mul", self.add_column(add("Cast", "position", to=1)), rates), phases)
        positions = add("Add", add("Mul", add("Sin", angles), network.alpha), network.first_bias)
        x = add("Add", add("MatMul", "features", network.first), positions)
        x = add("Relu", x) if is_mix else x
        count = add("Shape", "parent")
        ones = add("Expand", np.float32(1), add("Concat", count, _ONE, axis=0))
        trees = add("Add", add("ReduceMax", "tree", keepdims=1), _ONE)
        n_children = self.sum_children(ones, 1, count)
        has_parent = add("Cast", add("Less", self.add_column("parent"), count), to=1)
        terms = ones if is_mix else add("Add", add("Add", ones, n_children), has_parent)
        for coefficients, weight, bias in network.layers:
            children = self.sum_children(x, width, count)
            neighbours = {CHILDREN: add("Div", children, add("Max", n_children, np.float32(1))) if is_mix else children}
            padded = add("Concat", x, np.zeros((1, width)), axis=0)  # a missing neighbour is a row of zeros
            for kind, name in ((PARENT, "parent"), (LEFT, "left"), (RIGHT, "right")):
                neighbours[kind] = add("Gather", padded, name, axis=0)
            mixed = x
            for kind, neighbour in neighbours.items():
                mixed = add("Add", mixed, add("Mul", neighbour, coefficients[kind]))
            product = mixed if weight is None else add("MatMul", mixed, weight)
            update = add("Relu", add("Add", product, add("Mul", terms, bias)))
            x = add("Add", x, update) if is_mix else update
        sizes = self.sum_rows(ones, "tree", trees, 1)
        pooled = add("Div", self.sum_rows(x, "tree", trees, width), sizes)
        if is_mix:
            squares = add("Div", self.sum_rows(add("Mul", x, x), "tree", trees, width), sizes)
            pooled = add("Concat", pooled, add("Sqrt", add("Add", squares, np.float32(SQUARE_EPSILON))), axis=1)
        out = add(
            "Add", add("MatMul", pooled, network.output), network.output_bias, name="" if is_mix else "embeddings"
        )
        if is_mix:
            length = add("Max", add("ReduceL2", out, _ONE, keepdims=1), np.float32(1e-12))
            add("Div", out, length, name="embeddings")

    def sum_children(self, x: str, width: int, count: str) -> str:
        """Sum the rows of the children of each node; those of roots go to one more row, which is dropped."""
        sums = self.sum_rows(x, "parent", self.add("Add", count, _ONE), width)
        return self.add("Slice", sums, *(np.array([number]) for number in (0, -1, 0)))

    def sum_rows(self, x: str, target: str, rows: str, width: int) -> str:
        """Sum the rows of `x` with the same target."""
        zeros = self.add("Expand", np.float32(0), self.add("Concat", rows, np.array([width]), axis=0))
        return self.add("ScatterND", zeros, self.add_column(target), x, reduction="add")

    def add_column(self, x: str) -> str:
        """Turn a vector into a column."""
        return self.add("Unsqueeze", x, _ONE)

    def add(
        self, operator: str, *inputs: str | npt.NDArray[Any] | np.generic, name: str = "", **attributes: Any
    ) -> str:
        """Add one node, whose inputs are names or constants; numbers that are not integers become float32."""
        from onnx import helper, numpy_helper

        names = []
        for value in inputs:
            if not isinstance(value, str):
                array = np.asarray(value)
                kind = np.int64 if array.dtype.kind in "iu" else np.float32
                array = np.ascontiguousarray(array, kind).reshape(array.shape)
                value = f"constant{len(self.constants)}"
                self.constants.append(numpy_helper.from_array(array, value))
            names.append(value)
        name = name or f"value{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, names, [name], **attributes))
        return name
