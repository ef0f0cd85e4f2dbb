"""`Encoder`: formulas or trees to vectors, without torch.

The networks are the functions defined in `eqkin.encoder.model`, rearranged for speed. Norms are folded into the
weights. The first layer adds a vector per string (tag, attributes, text) and position. Trees pass through the layers in
chunks of a few hundred nodes, which stay in the processor's cache: matrix products by numpy, everything between them by
`eqkin.encoder.cpu_kernels`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from eqkin.encoder import cpu_kernels
from eqkin.encoder.model import DESCRIPTION_FILE, MIX, NORM_EPSILON, SQUARE_EPSILON, Model, compute_sinusoids
from eqkin.errors import BadInput, CorruptData
from eqkin.formulas import Forest
from eqkin.formulas.forest import iter_blocks

# Bundled models, by name.
MODELS_FOLDER = Path(__file__).parent / "models"
MODEL_NAMES = ("eqkin", "paper")
DEFAULT_MODEL = next(
    (name for name in MODEL_NAMES if (MODELS_FOLDER / name / DESCRIPTION_FILE).is_file()), MODEL_NAMES[-1]
)
_MIN_LENGTH = np.float32(1e-12)
# The coefficients of a node's neighbours are divided by its own one.
_MIN_COEFFICIENT = 1e-9
_NEIGHBOURS = 4
# Vectors of so many positions among siblings are computed at least.
_MIN_POSITIONS = 64
Floats = npt.NDArray[np.float32]


class Network(Protocol):
    """The weights of a model, ready to embed trees."""

    # Nodes whose vectors fit into memory.
    block_nodes: int

    def embed(self, forest: Forest) -> Floats:
        """Return the embeddings of all trees, (trees, dimensions)."""


class Encoder:
    """Maps formulas to vectors whose inner products measure how related they are. Thread-safe.

    Args:
        model: The model.
        network: Embeds trees; by default the model's network in numpy.
    """

    def __init__(self, model: Model, network: Network | None = None) -> None:
        self.model = model
        self._network: Network = network or NumpyNetwork(model)

    @classmethod
    def load(cls, model: str | os.PathLike[str] | None = None) -> Encoder:
        """Load a bundled model or one from a folder.

        Args:
            model: Name of a bundled model, "eqkin" or "paper", or a folder (write `./paper` for a folder of that
                name). The default is "eqkin", or "paper" if only that one is installed.

        Raises:
            BadInput: The folder contains no model.
            CorruptData: The model is damaged or of an unknown version, or eqkin was installed without it.
        """
        name = DEFAULT_MODEL if model is None else model
        if name not in MODEL_NAMES:
            return cls(Model.load(Path(name).expanduser()))
        folder = MODELS_FOLDER / name
        if not (folder / DESCRIPTION_FILE).is_file():
            raise CorruptData(f"eqkin was installed without its weights ({folder}); install it again with pip")
        return cls(Model.load(folder))

    @property
    def dimensions(self) -> int:
        """Length of a vector."""
        return self.model.architecture.dimensions

    @property
    def digest(self) -> str:
        """Identifier of the model; vectors of different models cannot be compared."""
        return self.model.digest

    def encode(self, formulas: str | Sequence[str], batch_size: int = 1_024, show_progress_bar: bool = False) -> Floats:
        r"""Return the vectors of LaTeX formulas, one per row; for a single formula its vector.

        Args:
            formulas: One or several, each of which may be enclosed in `$...$`, `\[...\]` or an environment.
            batch_size: Formulas whose trees are in memory together.
            show_progress_bar: Show how far it is.

        Raises:
            BadInput: A formula cannot be read; the message names it.
        """
        if isinstance(formulas, str):
            vector: Floats = self.embed(self.parse_formulas([formulas]))[0]
            return vector
        starts: Iterable[int] = range(0, len(formulas), batch_size)
        if show_progress_bar:
            from rich.progress import track

            starts = track(list(starts), "encoding")
        parts = [self.embed(self.parse_formulas(formulas[start : start + batch_size], start)) for start in starts]
        return np.concatenate(parts) if parts else np.empty((0, self.dimensions), np.float32)

    def similarity(self, left: Floats, right: Floats) -> Floats:
        """Return the cosines of two sets of vectors, or single vectors: one row for each of the first."""
        unit = [
            vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
            for vectors in (np.atleast_2d(left), np.atleast_2d(right))
        ]
        return np.asarray(unit[0] @ unit[1].T, np.float32)

    def parse_formulas(self, formulas: Sequence[str], first: int = 0) -> Forest:
        """Return the trees of LaTeX formulas, which do not influence each other; `first` is the number of the first.

        Raises `BadInput`.
        """
        from eqkin.formulas.conversion import convert_typed_formula
        from eqkin.formulas.engine import borrow_engine
        from eqkin.latex.typed import clean_typed_formula, decode_entities

        forests: list[Forest] = []
        with borrow_engine() as engine:
            for number, formula in enumerate(formulas, first):
                text = clean_typed_formula(decode_entities(formula.encode("utf-8", "replace").decode()).text)
                conversion = convert_typed_formula(engine, text, operators=False)
                failure = conversion.outcomes[0].failure
                if failure is not None:
                    position = f" at character {failure.position + 1}" if failure.position >= 0 else ""
                    excerpt = formula if len(formula) <= 200 else formula[:200] + "..."
                    raise BadInput(f"formula {number}, {excerpt!r}, cannot be read: {failure.message}{position}")
                forests.append(conversion.forest)
        return Forest.concatenate(forests)

    def embed(self, forest: Forest, progress: Callable[[int], None] | None = None) -> Floats:
        """Return the vectors of trees, one per row.

        Args:
            forest: The trees.
            progress: Called from time to time with the number of trees done.

        Raises:
            CorruptData: The arrays of the forest do not describe trees.
        """
        vectors = np.empty((len(forest), self.dimensions), np.float32)
        for trees, _ in iter_blocks(forest.offsets, self._network.block_nodes):
            is_whole = trees == slice(0, len(forest))
            part = forest if is_whole else forest.select(np.arange(trees.start, trees.stop))
            part.validate()
            vectors[trees] = self._network.embed(part)
            if progress:
                progress(trees.stop)
        return vectors


class _Layer(NamedTuple):
    # (4, width) of the neighbours.
    coefficients: Floats
    # (width, width); None: there is no product.
    weight: Floats | None
    # (width,).
    bias: Floats


class NumpyNetwork:
    """Weights prepared for embedding trees."""

    # Nodes whose strings and outputs are computed together.
    block_nodes = 65_536
    # Nodes that pass through the layers together: few enough to stay in the processor's cache.
    chunk_nodes = 512

    def __init__(self, model: Model) -> None:
        self._vocabulary, self.width = model.vocabulary, model.architecture.width
        self.is_mix = model.architecture.kind == MIX
        weights = {name: array.astype(np.float64) for name, array in model.weights.items()}
        self.first, self.first_bias = _to_float32(weights["first.weight"].T), weights["first.bias"]
        self.alpha = weights["first.alpha"]
        self._positions = np.empty((0, self.width), np.float32)
        soft_norm = 1.0 if self.is_mix else weights["soft_norm.mean"] + weights["soft_norm.deviation"]
        self.output = _to_float32(weights["output.weight"].T / soft_norm)
        self.output_bias = _to_float32(weights["output.bias"] / soft_norm)
        # The network "sum" adds up parents and children.
        summing = np.zeros((_NEIGHBOURS, self.width), np.float32)
        summing[[cpu_kernels.PARENT, cpu_kernels.CHILDREN]] = 1
        self.layers = [] if self.is_mix else [_Layer(summing, None, np.zeros(self.width, np.float32))]
        for layer in range(model.architecture.layers):
            weight, coefficients = weights[f"layers.{layer}.weight"], summing
            # The node's own coefficients and the norms are folded into the weights and the other coefficients.
            if self.is_mix:
                own, *others = weights[f"layers.{layer}.mix"]
                own = np.where(np.abs(own) < _MIN_COEFFICIENT, _MIN_COEFFICIENT, own)
                scale, bias = _fold_norm(weights, layer)
                coefficients, weight = _to_float32(np.array(others) / own), weight * own * scale[:, None]
            else:
                bias = weights[f"layers.{layer}.bias"]
                if layer in model.architecture.normalised:
                    scale, shift = _fold_norm(weights, layer)
                    weight, bias = weight * scale, bias + weight @ shift
            self.layers.append(_Layer(coefficients, _to_float32(weight.T), _to_float32(bias)))

    def embed(self, forest: Forest) -> Floats:
        """Return the embeddings of all trees, (trees, dimensions); those of "mix" have length 1."""
        width, is_mix, positions = self.width, self.is_mix, self._get_positions(forest)
        slots, ends = self._vocabulary.assign_slots(forest)
        strings = np.empty((len(ends), width), np.float32)
        cpu_kernels.embed_strings(self.first, slots, ends, strings)
        tag, attribute, text, n_children = (
            column.astype(np.int64) for column in (forest.tag, forest.attribute, forest.text, forest.n_children)
        )
        attribute += len(forest.tags)
        text += len(forest.tags) + len(forest.attributes)
        lowest = np.float32(0 if is_mix else -np.inf)
        pooled = np.empty((len(forest), 2 * width), np.float32)
        spans = list(iter_blocks(forest.offsets, self.chunk_nodes))
        longest = max((span.stop - span.start for _, span in spans), default=0)
        buffers = np.empty((3, longest + 1, width), np.float32)
        for trees, span in spans:
            offsets = forest.offsets[trees.start : trees.stop + 1] - span.start
            count, shape = span.stop - span.start, (n_children[span], offsets)
            nodes, mixed, products = buffers[0, : count + 1], buffers[1, :count], buffers[2, :count]
            nodes[count] = 0
            cpu_kernels.embed_nodes(strings, tag[span], attribute[span], text[span], positions, *shape, lowest, nodes)
            for coefficients, weight, bias in self.layers:
                cpu_kernels.mix_neighbours(nodes, coefficients, *shape, is_mix, mixed)
                results = mixed if weight is None else np.matmul(mixed, weight, out=products)
                cpu_kernels.rectify(results, bias, *shape, is_mix, nodes)
            cpu_kernels.pool_trees(nodes, offsets, pooled[trees])
        if is_mix:
            np.sqrt(pooled[:, width:] + np.float32(SQUARE_EPSILON), out=pooled[:, width:])
        embeddings: Floats = pooled[:, : len(self.output)] @ self.output + self.output_bias
        if is_mix:
            embeddings /= np.maximum(np.linalg.norm(embeddings, axis=1, keepdims=True), _MIN_LENGTH)
        return embeddings

    def _get_positions(self, forest: Forest) -> Floats:
        """Return alpha E(p) + b of the first layer for as many positions as the forest has siblings."""
        most, positions = int(forest.n_children.max(initial=1)), self._positions
        # Another thread may replace the attribute by a shorter table: only the local one is used.
        if most > len(positions):
            sinusoids = compute_sinusoids(max(_MIN_POSITIONS, 2 * most), self.width)
            positions = self._positions = _to_float32(self.alpha * sinusoids + self.first_bias)
        return positions


def _to_float32(array: npt.NDArray[np.float64]) -> Floats:
    return np.ascontiguousarray(array, np.float32)


def _fold_norm(weights: Mapping[str, npt.NDArray[Any]], layer: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the scale and the shift that are equivalent to the batch normalisation of a layer."""
    norm = {name: weights[f"layers.{layer}.norm.{name}"] for name in ("weight", "bias", "mean", "variance")}
    scale = norm["weight"] / np.sqrt(norm["variance"] + NORM_EPSILON)
    return scale, norm["bias"] - norm["mean"] * scale
