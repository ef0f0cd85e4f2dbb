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

from eqkin.encoder.architecture import FEATURES, MIX, SQUARE_EPSILON
from eqkin.encoder.model import Model
from eqkin.encoder.numpy_network import fold_norm
from eqkin.errors import BadInput
from eqkin.storage import write_file
from eqkin.trees import Forest, Vocabulary
from eqkin.trees.vocabulary import to_dense

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto

OPSET, IR_VERSION = 18, 10
INDEX_INPUTS = ("position", "parent", "left", "right", "tree")


def make_inputs(forest: Forest, vocabulary: Vocabulary) -> dict[str, npt.NDArray[Any]]:
    """Compute the inputs of an exported network for some trees."""
    nodes, numbers = len(forest.n_children), np.arange(len(forest.n_children))
    is_root = np.zeros(nodes, bool)
    is_root[forest.offsets[:-1]] = True
    parent, position = np.asarray(forest.compute_parent(), np.int64), np.asarray(forest.compute_position(), np.int64)
    siblings = np.where(is_root, 1, forest.n_children[np.where(is_root, 0, parent)])
    return {
        "features": to_dense(vocabulary.extract_features(forest)).astype(np.float32),
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
    graph = _GraphBuilder(model)
    graph.build()
    node_axis, tree_axis = "nodes", "trees"
    helper, float_type, int_type = onnx.helper, onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
    inputs = [helper.make_tensor_value_info("features", float_type, [node_axis, FEATURES])]
    inputs += [helper.make_tensor_value_info(name, int_type, [node_axis]) for name in INDEX_INPUTS]
    shape: list[str | int | None] = [tree_axis, model.architecture.dimensions]
    outputs = [helper.make_tensor_value_info("embeddings", float_type, shape)]
    made = helper.make_graph(graph.nodes, "eqkin", inputs, outputs, graph.constants)
    proto = helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    helper.set_model_props(proto, {"vocabulary": model.vocabulary.to_json(), "digest": model.digest})
    onnx.checker.check_model(proto)
    write_file(path, proto.SerializeToString())


class _GraphBuilder:
    """Collects the nodes of a graph; every method returns the name of its result."""

    def __init__(self, model: Model) -> None:
        self.shape, self.weights = model.architecture, model.weights
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []

    def build(self) -> None:
        """Add the whole network."""
        x = self.add("Add", self.multiply("features", self.weights["first.weight"].T), self.give_positions())
        x = self.add("Add", x, self.hold(self.weights["first.bias"]))
        is_mix = self.shape.kind == MIX
        x = self.add("Relu", x if is_mix else self.sum_neighbours(x))
        for layer in range(self.shape.layers):
            x = self.mix_layer(x, layer) if is_mix else self.sum_layer(x, layer)
        counts = self.scatter(self.expand_ones("tree"), "tree", "trees")
        mean = self.add("Div", self.scatter(x, "tree", "trees"), counts)
        if is_mix:
            squares = self.add("Div", self.scatter(self.add("Mul", x, x), "tree", "trees"), counts)
            root = self.add("Sqrt", self.add("Add", squares, self.hold(np.float32(SQUARE_EPSILON))))
            mean = self.add("Concat", mean, root, axis=1)
        out = self.add(
            "Add", self.multiply(mean, self.weights["output.weight"].T), self.hold(self.weights["output.bias"])
        )
        if is_mix:
            length = self.add("ReduceL2", out, self.hold(np.array([1])), keepdims=1)
            self.add("Div", out, self.add("Max", length, self.hold(np.float32(1e-12))), name="embeddings")
        else:
            soft_norm = self.weights["soft_norm.mean"] + self.weights["soft_norm.deviation"]
            self.add("Div", out, self.hold(soft_norm), name="embeddings")

    def mix_layer(self, x: str, layer: int) -> str:
        """Return x + relu(norm(W m)), where m mixes each node with its neighbours."""
        terms = self.weights[f"layers.{layer}.mix"]
        padded = self.pad(x)
        children = self.add("Div", self.scatter(x, "parent", "nodes"), self.count_children())
        mixed = self.add("Mul", x, self.hold(terms[0]))
        for term, other in ((1, "parent"), (3, "left"), (4, "right")):
            neighbour = self.add("Gather", padded, other, axis=0)
            mixed = self.add("Add", mixed, self.add("Mul", neighbour, self.hold(terms[term])))
        mixed = self.add("Add", mixed, self.add("Mul", children, self.hold(terms[2])))
        projected = self.multiply(mixed, self.weights[f"layers.{layer}.weight"].T)
        return self.add("Add", x, self.add("Relu", self.normalise(projected, layer)))

    def sum_layer(self, x: str, layer: int) -> str:
        """Return relu of the sum over each node and its neighbours of W norm(x) + b."""
        if layer in self.shape.normalised:
            x = self.normalise(x, layer)
        projected = self.multiply(x, self.weights[f"layers.{layer}.weight"].T)
        return self.add(
            "Relu", self.sum_neighbours(self.add("Add", projected, self.hold(self.weights[f"layers.{layer}.bias"])))
        )

    def sum_neighbours(self, x: str) -> str:
        """The sum over each node, its parent and its children."""
        above = self.add("Gather", self.pad(x), "parent", axis=0)
        return self.add("Add", self.add("Add", x, above), self.scatter(x, "parent", "nodes"))

    def normalise(self, x: str, layer: int) -> str:
        """Batch normalisation with the statistics of the training."""
        scale, shift = fold_norm(self.weights, layer)
        return self.add("Add", self.add("Mul", x, self.hold(scale)), self.hold(shift))

    def give_positions(self) -> str:
        """The learned multiple of sin and cos of the position, alternating."""
        width = self.shape.width
        rates = (10_000.0 ** (-np.arange(0, width, 2) / width))[None, :]
        place = self.add("Unsqueeze", self.add("Cast", "position", to=1), self.hold(np.array([1])))
        angles = self.add("Mul", place, self.hold(rates))
        axis = self.hold(np.array([2]))
        waves = [self.add("Unsqueeze", self.add(name, angles), axis) for name in ("Sin", "Cos")]
        joined = self.add("Reshape", self.add("Concat", *waves, axis=2), self.hold(np.array([0, -1])))
        cut = self.add("Slice", joined, *(self.hold(np.array([n])) for n in (0, width, 1)))
        return self.add("Mul", cut, self.hold(self.weights["first.alpha"]))

    def count_children(self) -> str:
        """The number of children of each node, at least 1."""
        counts = self.scatter(self.expand_ones("parent"), "parent", "nodes")
        return self.add("Max", counts, self.hold(np.float32(1)))

    def pad(self, x: str) -> str:
        """A row of zeros, which a missing neighbour has, after the others."""
        return self.add("Concat", x, self.hold(np.zeros((1, self.shape.width))), axis=0)

    def expand_ones(self, like: str) -> str:
        """A column of ones, one for each row of an input."""
        shape = self.add("Concat", self.add("Shape", like), self.hold(np.array([1])), axis=0)
        return self.add("Expand", self.hold(np.float32(1)), shape)

    def scatter(self, x: str, target: str, rows: str) -> str:
        """Sums of the rows of `x` with the same target: one per node, or one per tree."""
        if rows == "nodes":  # and one more for the roots, which is dropped
            count = self.add("Add", self.add("Shape", target), self.hold(np.array([1])))
        else:
            count = self.add("Add", self.add("ReduceMax", target, keepdims=1), self.hold(np.array([1])))
        width = self.add("Slice", self.add("Shape", x), *(self.hold(np.array([n])) for n in (1, 2)))
        zeros = self.add("Expand", self.hold(np.float32(0)), self.add("Concat", count, width, axis=0))
        indices = self.add("Unsqueeze", target, self.hold(np.array([1])))
        sums = self.add("ScatterND", zeros, indices, x, reduction="add")
        if rows == "trees":
            return sums
        return self.add("Slice", sums, *(self.hold(np.array([n])) for n in (0, -1, 0)))

    def multiply(self, x: str, matrix: npt.NDArray[np.float32]) -> str:
        """The product with a matrix of weights."""
        return self.add("MatMul", x, self.hold(matrix))

    def hold(self, value: npt.NDArray[Any] | np.generic) -> str:
        """A constant; numbers that are not integers become float32."""
        from onnx import numpy_helper

        array = np.asarray(value)
        kind = np.int64 if array.dtype.kind in "iu" else np.float32
        name = f"constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array, kind).reshape(array.shape), name))
        return name

    def add(self, operator: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """One node of the graph."""
        from onnx import helper

        name = name or f"value{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], **attributes))
        return name
