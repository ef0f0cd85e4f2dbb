"""How fast recipes train, compared with torch-geometric and the bare matrix products, in one run.

All see the same batches of real trees. torch-geometric runs the same network (`SimpleConv` with sum aggregation)
and the same losses in bf16, on batches that eqkin draws and builds on the device, which is faster than its own loader.
The limit is the time of the network's matrix products alone, forward and backward, in bf16 (float32 on a CPU).
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.benchmark import Timer

from benchmarks.report import BenchmarkReport, log
from eqkin.encoder.model import FEATURES, SUM, Vocabulary
from eqkin.learning.config import Recipe
from eqkin.learning.data import Corpus
from eqkin.learning.losses import MASKING_CLASSES, TrainingData, build_training_data
from eqkin.learning.sampling import make_step_column
from eqkin.learning.torch_network import SumNetwork, TreeConvolution
from eqkin.learning.trainer import RecipeTrainer
from eqkin.learning.tree_ops import TreeBatch

# After these, most sizes of batches have a CUDA graph.
_WARM_UP_TRIPLETS = 2**19


def measure_training(
    corpus: Corpus, recipes: list[Recipe], batches: list[int], device: torch.device, seconds: float
) -> BenchmarkReport:
    """Measure the speed of each recipe for each batch size, and the memory of a corpus on the device."""
    report = BenchmarkReport("train", {"device": device.type, "equations": len(corpus)})
    report.facts["nodes_per_equation"] = len(corpus.forest.tag) / len(corpus)
    vocabulary = Vocabulary.learn([corpus.forest])
    for recipe in recipes:
        data = build_training_data(corpus, vocabulary, recipe, device)
        # Trees, labels, teachers, and what triplets are drawn from.
        memory = count_device_bytes(data) / len(corpus)
        report.add("Data on the device", recipe.name, bytes_per_equation=memory)
        for batch in batches:
            log(f"{recipe.name}, batches of {batch:,} triplets")
            _measure_batch(report, recipe.override({"batch": str(batch)}), data, seconds)
    return report


def count_device_bytes(value: object) -> int:
    """Return the bytes of all tensors that an object consists of."""
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    return sum(map(count_device_bytes, vars(value).values())) if hasattr(value, "__dict__") else 0


def _measure_batch(report: BenchmarkReport, recipe: Recipe, data: TrainingData, seconds: float) -> None:
    device, on_gpu = data.forest.device, data.forest.device.type == "cuda"
    # What was compiled for another size of batches would be compiled again for any size.
    torch.compiler.reset()
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    trainer = RecipeTrainer(recipe, data, fast=on_gpu)
    warm_up = max(512, _WARM_UP_TRIPLETS // recipe.batch) if on_gpu else 2
    rates = {"eqkin": _measure_rate(trainer, seconds, warm_up)}
    peak = torch.cuda.max_memory_allocated() if on_gpu else None
    if recipe.architecture.kind == SUM:
        for compiled in (False, True) if on_gpu else (False,):
            rate = _measure_geometric(recipe, data, seconds, compiled=compiled)
            if rate is not None:
                rates[f"torch-geometric, {'compiled' if compiled else 'eager'}"] = rate
    drawn = data.sampler.draw(make_step_column(0, 64, device), recipe.batch).concatenate()
    nodes = float(data.forest.get_sizes(drawn).sum(1).double().mean())
    limit = rates["matrix products alone"] = recipe.batch / _time_matrix_products(recipe, round(nodes), device)
    for name, rate in rates.items():
        report.add(
            f"{recipe.name}, batches of {recipe.batch:,}",
            name,
            triplets_per_second=rate,
            of_matrix_products=rate / limit,
            times_eqkin=rate / rates["eqkin"],
            nodes_per_batch=nodes,
            peak_gpu_bytes=peak if name == "eqkin" else None,
        )


def _measure_rate(trainer: RecipeTrainer, seconds: float, warm_up: int) -> float:
    """Return triplets per second, after some steps to compile, record and warm up."""
    while trainer.step < warm_up:
        trainer.take_steps(min(trainer.steps_ahead, warm_up - trainer.step))
    first, started = trainer.step, time.perf_counter()
    while time.perf_counter() - started < seconds:
        trainer.take_steps(trainer.steps_ahead)
    return (trainer.step - first) * trainer.recipe.batch / (time.perf_counter() - started)


def _measure_geometric(recipe: Recipe, data: TrainingData, seconds: float, *, compiled: bool) -> float | None:
    """Train with torch-geometric's convolution and pooling in place of ours; None if it is not installed."""
    try:
        import torch_geometric  # noqa: F401
    except ImportError:
        return None
    trainer = RecipeTrainer(recipe, data)
    assert isinstance(trainer.objective.network, SumNetwork)
    trainer.objective.network = GeometricNetwork(trainer.objective.network)
    if compiled:
        trainer.compile()
    return _measure_rate(trainer, seconds, 16 if data.forest.device.type == "cuda" else 2)


class GeometricNetwork(SumNetwork):
    """The network written with torch-geometric; it shares the weights of another."""

    def __init__(self, network: SumNetwork) -> None:
        from torch_geometric.nn import SimpleConv

        nn.Module.__init__(self)
        self.architecture = network.architecture
        # The same weights, so that Adam moves them.
        self.first, self.layers = network.first, network.layers
        self.output, self.soft_norm = network.output, network.soft_norm
        self.convolution = SimpleConv(aggr="sum", combine_root="sum")
        width, device = network.architecture.width, network.output.weight.device
        self.norms = nn.ModuleDict({str(i): nn.BatchNorm1d(width) for i in network.architecture.normalised}).to(device)

    def encode_nodes(self, features: Tensor, trees: TreeBatch) -> Tensor:
        """Encode nodes, see `SumNetwork.encode_nodes`."""
        edges = self.build_edges(trees)
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
        """Pool nodes, see `SumNetwork.pool`."""
        from torch_geometric.nn import global_mean_pool

        means = global_mean_pool(nodes, trees.tree, size=len(trees.offsets) - 1).float()
        embedding: Tensor = self.soft_norm(self.output(means))
        return embedding

    @staticmethod
    def build_edges(trees: TreeBatch) -> Tensor:
        """Return the edges between parents and children in both directions, of shape (2, edges)."""
        child = torch.nonzero(trees.parent >= 0).squeeze(1)
        parent = trees.parent[child].long()
        return torch.stack([torch.cat([child, parent]), torch.cat([parent, child])])


def _time_matrix_products(recipe: Recipe, nodes: int, device: torch.device) -> float:
    """Return the seconds of one step's matrix products, forward and backward."""
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    shape = recipe.architecture
    hidden = round(nodes * recipe.masking)
    # Rows, inputs, outputs, and whether the input has a gradient.
    layers = [(nodes, FEATURES, shape.width, False)]
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
    timer = Timer("for product in work: product()", globals={"work": work}, num_threads=torch.get_num_threads())
    return float(timer.blocked_autorange(min_run_time=1.0).median)
