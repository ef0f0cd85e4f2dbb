"""The authors' earlier work as a baseline: images of equations, three convolutions, triplet loss.

The network is the small one of the code published with Pfahler, Schill and Morik, The Search for Equations (2019): 32
channels per layer, windows of 3 x 3, 5 x 5 and 3 x 3 without padding, GELU, then max pooling of 2 x 4, 2 x 4 and 3 x 3;
a linear map takes the remaining 32 channels of 1 x 5 to 64 numbers, which are scaled to length 1.

Training differs from the published code where the paper or this comparison does: triplets are drawn as for the graph
network, the loss is the paper's triplet loss (theirs was squared and took the harder of two negatives), the learning
rate rises and falls linearly (theirs fell tenfold every ten epochs) from the same peak, batches have 128 triplets
(theirs 100). Formulas that are too large for an image are scaled down, or cropped as theirs were.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

import numpy as np
import torch
from eqkin.evaluation.context import FULL_SCALE, ExperimentContext, drop_text
from torch import Tensor, nn
from torch.nn import functional

from eqkin.evaluation.formulas import Float32s
from eqkin.learning.config import OptimizerConfig, choose_device
from eqkin.learning.data import Corpus
from eqkin.learning.losses import compute_triplet_loss
from eqkin.learning.randomness import make_step_column
from eqkin.learning.sampling import TripletSampler
from research.bitmaps import HEIGHT, ROW_BYTES, VERSION, WIDTH, Heights, PackedImages, get_images
from research.networks import ExperimentData, NetworkRunner, NetworkSettings
from research.training import train_module
from research.triples import HeldOutTriples, pack_bits

DIMENSIONS = 64
CONTEXTS = ("section", "paper")
SUBSET_SEED = 0
TEST_SHARE = 0.5  # held-out equations, in relation to the scale of an experiment
BATCH_SIZE, LEARNING_RATE = 128, 2.5e-4
_CHANNELS = 32
_POOLED_WIDTH = 5
_EMBEDDED_IMAGES = {"cuda": 4_096, "cpu": 64}  # at once


@dataclass(frozen=True)
class BitmapSettings:
    """What large formulas become, from how many equations the network learns, and how long it is trained."""

    title: str
    crop: bool
    times: float = 1.0  # as many equations as the scale of an experiment says
    triplets: int = 2_000_000
    batch_size: int = BATCH_SIZE


BITMAP_NETWORKS = {
    "scaled": BitmapSettings("Scaled down", False),
    "cropped": BitmapSettings("Cropped", True),
    "cropped-more": BitmapSettings("Cropped", True, times=7.5),
}
PEER = NetworkSettings("Graph network, same triplets", triplets=2_000_000)


class BitmapNetwork(nn.Module):
    """Packed images to vectors of length 1."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, _CHANNELS, 3), nn.GELU(), nn.MaxPool2d((2, 4)),
            nn.Conv2d(_CHANNELS, _CHANNELS, 5), nn.GELU(), nn.MaxPool2d((2, 4)),
            nn.Conv2d(_CHANNELS, _CHANNELS, 3), nn.GELU(), nn.MaxPool2d(3),
        )  # fmt: skip
        self.output = nn.Linear(_CHANNELS * _POOLED_WIDTH, DIMENSIONS)

    def forward(self, packed: Tensor) -> Tensor:
        """Embed images: (images, ROW_BYTES, HEIGHT) bytes -> (images, 64)."""
        vectors: Tensor = self.output(self.layers(unpack_tensor(packed)).flatten(1))
        return functional.normalize(vectors.float())

    @torch.no_grad()
    def embed(self, images: PackedImages) -> Float32s:
        """Embed many images."""
        device = self.output.weight.device
        vectors, size = np.empty((len(images), DIMENSIONS), np.float32), _EMBEDDED_IMAGES[device.type]
        for start in range(0, len(images), size):
            batch = torch.from_numpy(images[start : start + size]).to(device)
            vectors[start : start + size] = self(batch).cpu().numpy()
        return vectors


def unpack_tensor(packed: Tensor) -> Tensor:
    """Unpack images for the convolutions, (images, 1, HEIGHT, WIDTH), ink from 0 to 1."""
    shifts = torch.tensor([6, 4, 2, 0], dtype=torch.uint8, device=packed.device)[:, None]
    levels = (packed[:, :, None, :] >> shifts) & 3
    levels = levels.view(-1, ROW_BYTES * 4, HEIGHT)[:, :WIDTH]
    return levels.transpose(1, 2)[:, None].float() / 3


def draw_subset(corpus: Corpus, count: int, seed: int = SUBSET_SEED) -> Corpus:
    """Draw whole papers until they have `count` equations, in an order given by the seed and their keys."""
    equations = np.bincount(corpus.paper, minlength=len(corpus.papers))
    names = [f"{seed}:{key}".encode("utf-8", "surrogatepass") for key in corpus.papers]
    order = sorted(range(len(names)), key=lambda paper: sha256(names[paper]).digest())
    before = np.cumsum(equations[order]) - equations[order]
    return corpus.select(np.array(order, np.int64)[before < count])


@dataclass(frozen=True, eq=False)
class BitmapData:
    """Images of some training equations and some held-out ones, by whether large formulas are cropped."""

    train: Corpus
    test: Corpus
    images: dict[bool, tuple[PackedImages, PackedImages]]
    heights: Heights  # of the held-out formulas, in pixels

    @classmethod
    def build(cls, context: ExperimentContext, train: Corpus, held_out: Corpus, times: float = 1.0) -> BitmapData:
        """Draw the equations of some `BITMAP_NETWORKS`, and render them or read images that were rendered before."""
        count = context.scale.bitmaps
        parts = (
            draw_subset(drop_text(train), round(times * count)),
            draw_subset(drop_text(held_out), round(TEST_SHARE * count)),
        )
        images, heights = {}, np.zeros(0, np.float32)
        for crop in sorted({one.crop for one in BITMAP_NETWORKS.values() if one.times == times}):
            (first, _), (second, heights) = (
                get_images(context.cache.folder, part.forest, crop=crop, log=context.log) for part in parts
            )
            images[crop] = first, second
        return cls(*parts, images, heights)

    def draw_triples(self, count: int) -> tuple[HeldOutTriples, HeldOutTriples]:
        """Draw triples of the training equations and of the held-out ones."""
        return HeldOutTriples(self.train, count, contexts=CONTEXTS), HeldOutTriples(self.test, count, contexts=CONTEXTS)


def measure_bitmaps(context: ExperimentContext, data: BitmapData, name: str) -> dict[str, Any]:
    """Train one of `BITMAP_NETWORKS` and rank triples of both halves, or return the cached measurement."""
    settings, device = BITMAP_NETWORKS[name], choose_device(context.device)
    triplets = max(round(settings.triplets * context.scale.triplets / FULL_SCALE.triplets), settings.batch_size)
    config = OptimizerConfig(-(-triplets // settings.batch_size), LEARNING_RATE)
    count = context.scale.triples // 5

    def measure() -> dict[str, Any]:
        train, test = data.images[settings.crop]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            network = BitmapNetwork().to(device)
        images = torch.from_numpy(train).to(device)
        sampler = TripletSampler(data.train, kinds=CONTEXTS, seed=0, device=device)

        def compute_loss(step: int) -> Tensor:
            trees = sampler.draw(make_step_column(step, 1, device), settings.batch_size).concatenate()[0]
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                vectors = network(images[trees])
            return compute_triplet_loss(*vectors.chunk(3))

        loss = train_module(
            network, compute_loss, config,
            progress=lambda step, steps, loss: context.log(f"{name}: step {step:,} of {steps:,}, loss {loss:.3f}"),
        )  # fmt: skip
        learned, held_out = data.draw_triples(count)
        found = (learned.find_correct(network.embed(train)), held_out.find_correct(network.embed(test)))
        return {"network": name, "loss": loss, "train": pack_bits(found[0]), "test": pack_bits(found[1])}

    key = {"settings": asdict(settings), "steps": config.steps, "triples": count, "rendering": VERSION}
    key |= {"train": data.train.digest, "test": data.test.digest}
    return context.cache.get_or_measure("bitmaps", key, measure)


def measure_peer(context: ExperimentContext, data: BitmapData) -> dict[str, Any]:
    """Train the graph network on the equations of the images, and rank the same triples, or return what is cached."""
    parts = ExperimentData(data.train, data.test, {}, [], None, {}, {})
    runner = NetworkRunner(context, parts, networks={"peer": PEER})

    def measure() -> dict[str, Any]:
        network = runner.get_network("peer")
        triples = data.draw_triples(context.scale.triples // 5)
        found = [
            pack_bits(some.find_correct(network.embed(corpus.forest, runner.device)))
            for some, corpus in zip(triples, (data.train, data.test), strict=True)
        ]
        return {"network": "peer", "train": found[0], "test": found[1]}

    key = runner.make_key("peer") | {"triples": context.scale.triples // 5, "test": data.test.digest}
    return context.cache.get_or_measure("bitmaps", key, measure)
