"""`python -m benchmarks train`: how fast a recipe learns, beside torch-geometric and the bare matrix products, in one run.

All three see the same batches of real trees. torch-geometric does the same network (`SimpleConv` with sum aggregation)
and the same losses in bf16, on batches that are drawn and put together on the device by eqkin, which is more than its
own loader would do. The limit is what the network's matrix products alone take, forward and backward, in bf16 (float32
on a CPU).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from eqkin.encoder.architecture import FEATURES, SUM
from eqkin.encoder.torch_network import SumNetwork, TreeConvolution
from eqkin.encoder.tree_ops import TreeBatch
from eqkin.training.corpus import Corpus
from eqkin.training.masking import MASKING_CLASSES
from eqkin.training.material import TrainingData, build_training_data
from eqkin.training.randomness import make_step_column
from eqkin.training.recipes import Recipe
from eqkin.training.steps import Trainer
from eqkin.trees import Vocabulary

PAPER_TRIPLETS_PER_SECOND = 1_300  # on a GTX 1080
PAPER_EQUATIONS = 28_973_591
_BYTES_OF_MANY_LABELS = 4


@dataclass(frozen=True)
class TrainingSpeed:
    """What was measured with one batch size."""

    batch: int
    nodes: float  # of a batch, on average
    ours: float  # triplets a second
    geometric: float | None  # None: torch-geometric is not installed
    geometric_compiled: float | None  # the same through torch.compile
    limit: float
    peak_bytes: int  # of the GPU, while eqkin learned

    def summary(self) -> dict[str, Any]:
        """Figures and ratios."""
        return {
            **vars(self),
            "paper": PAPER_TRIPLETS_PER_SECOND,
            "to_geometric": self.ours / self.geometric if self.geometric else None,
            "to_compiled": self.ours / self.geometric_compiled if self.geometric_compiled else None,
            "to_limit": self.ours / self.limit,
            "to_paper": self.ours / PAPER_TRIPLETS_PER_SECOND,
        }


@dataclass(frozen=True)
class Memory:
    """What a corpus takes on the device."""

    equations: int
    nodes_an_equation: float
    bytes_a_label: int  # of each node
    bytes_an_equation: float  # trees, tables of labels and everything that triplets are drawn from

    def summary(self) -> dict[str, Any]:
        """Figures, and what as many equations as the paper has would take.

        Those have more labels than fit in two bytes. Their tables are reckoned to grow with the equations, which is
        more than they do.
        """
        wider = self.nodes_an_equation * (_BYTES_OF_MANY_LABELS - self.bytes_a_label)
        projected = (self.bytes_an_equation + wider) * PAPER_EQUATIONS
        return {**vars(self), "paper_equations": PAPER_EQUATIONS, "projected_bytes": projected}


def measure(
    corpus: Corpus,
    recipe: Recipe,
    batches: list[int],
    device: torch.device,
    *,
    seconds: float = 10.0,
    peers: bool = True,
) -> Iterator[Memory | TrainingSpeed]:
    """Memory first, then the speeds for each batch size."""
    material = build_training_data(corpus, Vocabulary.learn([corpus.forest]), recipe, device)
    yield Memory(
        len(corpus),
        len(corpus.forest.tag) / len(corpus),
        material.forest.label.element_size(),
        material.bytes / len(corpus),
    )
    for batch in batches:
        comparable = peers and recipe.architecture.kind == SUM
        yield _measure(recipe.override({"batch": str(batch)}), material, seconds, comparable)


def _measure(recipe: Recipe, material: TrainingData, seconds: float, peers: bool) -> TrainingSpeed:
    device, on_gpu = material.forest.device, material.forest.device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    stepper = Trainer(recipe, material, compiled=on_gpu, recorded=on_gpu)
    ours = _rate(stepper, seconds, warm_up=512 if on_gpu else 2)
    peak = torch.cuda.max_memory_allocated() if on_gpu else 0
    drawn = material.sampler.draw(make_step_column(0, 64, device), recipe.batch).concatenate()
    nodes = float(material.forest.get_sizes(drawn).sum(1).double().mean())
    return TrainingSpeed(
        recipe.batch,
        nodes,
        ours,
        _geometric(recipe, material, seconds, compiled=False) if peers else None,
        _geometric(recipe, material, seconds, compiled=True) if peers and on_gpu else None,
        recipe.batch / _products(recipe, round(nodes), device),
        peak,
    )


def _rate(stepper: Trainer, seconds: float, *, warm_up: int) -> float:
    """Triplets a second, after some steps to compile, record and warm up."""
    while stepper.step < warm_up:
        stepper.train_steps(min(stepper.ahead, warm_up - stepper.step))
    first, started = stepper.step, time.perf_counter()
    while time.perf_counter() - started < seconds:
        stepper.train_steps(stepper.ahead)
    return (stepper.step - first) * stepper.recipe.batch / (time.perf_counter() - started)


def _geometric(recipe: Recipe, material: TrainingData, seconds: float, *, compiled: bool) -> float | None:
    """The same with torch-geometric's convolution and pooling in place of ours."""
    try:
        import torch_geometric  # noqa: F401
    except ImportError:
        return None
    stepper = Trainer(recipe, material, compiled=False, recorded=False)
    assert isinstance(stepper.objective.network, SumNetwork)
    stepper.objective.network = GeometricNetwork(stepper.objective.network)
    if compiled:
        stepper.compile()
    return _rate(stepper, seconds, warm_up=16 if material.forest.device.type == "cuda" else 2)


class GeometricNetwork(SumNetwork):
    """The network as one would write it with torch-geometric, with the weights of another."""

    def __init__(self, network: SumNetwork) -> None:
        from torch_geometric.nn import SimpleConv

        nn.Module.__init__(self)
        self.architecture = network.architecture
        self.first, self.layers = network.first, network.layers  # the same weights, so that Adam moves them
        self.output, self.soft_norm = network.output, network.soft_norm
        self.convolution = SimpleConv(aggr="sum", combine_root="sum")
        width, device = network.architecture.width, network.output.weight.device
        self.norms = nn.ModuleDict({str(i): nn.BatchNorm1d(width) for i in network.architecture.normalised}).to(device)

    def encode_nodes(self, features: Tensor, trees: TreeBatch) -> Tensor:
        """See `SumNetwork.nodes`."""
        edges = self.edges(trees)
        dtype = features.dtype
        first = self.first
        x: Tensor = nn.functional.linear(features, first.weight.to(dtype), first.bias.to(dtype))
        x = x + (first.alpha * first.positions[trees.position]).to(dtype)
        x = self.convolution(x, edges).relu()
        for i, layer in enumerate(self.layers):
            assert isinstance(layer, TreeConvolution)
            if str(i) in self.norms:
                x = self.norms[str(i)](x)
            x = nn.functional.linear(x, layer.weight.to(dtype), layer.bias.to(dtype))
            x = self.convolution(x, edges).relu()
        return x

    def pool(self, nodes: Tensor, trees: TreeBatch) -> Tensor:
        """See `SumNetwork.pool`."""
        from torch_geometric.nn import global_mean_pool

        means = global_mean_pool(nodes, trees.tree, size=len(trees.offsets) - 1).float()
        embedding: Tensor = self.soft_norm(self.output(means))
        return embedding

    @staticmethod
    def edges(trees: TreeBatch) -> Tensor:
        """Edges between parents and children, both ways, as torch-geometric wants them: (2, edges)."""
        child = torch.nonzero(trees.parent >= 0).squeeze(1)
        parent = trees.parent[child].long()
        return torch.stack([torch.cat([child, parent]), torch.cat([parent, child])])


def _products(recipe: Recipe, nodes: int, device: torch.device) -> float:
    """Seconds that the matrix products of one step take, forward and backward."""
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    shape = recipe.architecture
    hidden = round(nodes * recipe.masking)
    layers = [(nodes, FEATURES, shape.width, False)]  # rows, inputs, outputs, whether the input has a gradient
    layers += [(nodes, shape.width, shape.width, True)] * shape.layers
    layers += [(3 * recipe.batch, shape.pooled_width, shape.dimensions, True)]
    layers += [(hidden, shape.width, classes, True) for classes in MASKING_CLASSES.values() if hidden]
    work: list[Callable[[], Tensor]] = []
    for rows, inputs, outputs, has_gradient in layers:
        x = torch.randn(rows, inputs, device=device, dtype=dtype)
        w = torch.randn(outputs, inputs, device=device, dtype=dtype)
        y = torch.randn(rows, outputs, device=device, dtype=dtype)
        work.append(lambda x=x, w=w: x @ w.T)  # type: ignore[misc]
        work.append(lambda x=x, y=y: y.T @ x)  # type: ignore[misc]
        if has_gradient:
            work.append(lambda w=w, y=y: y @ w)  # type: ignore[misc]
    repeats = 50 if device.type == "cuda" else 1
    times = []
    for _ in range(5):
        _wait(device)
        started = time.perf_counter()
        for _ in range(repeats):
            for product in work:
                product()
        _wait(device)
        times.append((time.perf_counter() - started) / repeats)
    return sorted(times)[len(times) // 2]


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()
