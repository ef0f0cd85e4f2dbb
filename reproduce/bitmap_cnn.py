"""The authors' earlier work as a baseline: images of equations, three convolutions, triplet loss.

The network is the small one of the code published with Pfahler, Schill and Morik, The Search for Equations (2019): 32
channels per layer, windows of 3 x 3, 5 x 5 and 3 x 3 without padding, GELU, then max pooling of 2 x 4, 2 x 4 and 3 x 3;
a linear map takes the remaining 32 channels of 1 x 5 to 64 numbers, which are scaled to length 1.

Training differs from the published code where the paper or this comparison does: triplets are drawn as for the graph
network (section, paper and citation), the loss is the paper's triplet loss (theirs was squared and took the harder of
two negatives), the learning rate rises and falls linearly (theirs fell tenfold every ten epochs) from the same peak,
batches have 128 triplets (theirs 100), and formulas that are too large are scaled down (theirs were cropped).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from eqkin.errors import BadInput
from eqkin.evaluation.formulas import Float32s, FormulaSet
from eqkin.evaluation.systems.base import EmbeddingSystem
from eqkin.training.config import CONTEXT_KINDS, choose_device
from eqkin.training.data import Corpus
from eqkin.training.losses import TripletLoss
from eqkin.training.randomness import make_step_column
from eqkin.training.sampling import TripletSampler
from reproduce.bitmaps import HEIGHT, ROW_BYTES, VERSION, WIDTH, ImageCache, PackedImages
from reproduce.fits import TripletTraining, load_fit, save_fit, train_on_triplets

DIMENSIONS = 64
SUBSET_SEED = 0
_DESCRIPTION_FILE = "bitmap_cnn.json"
_CHANNELS = 32
_POOLED_WIDTH = 5
_BATCH_SIZES = {"cuda": 4_096, "cpu": 64}  # images embedded at once


@dataclass(frozen=True)
class BitmapTraining(TripletTraining):
    """Training settings of the bitmap CNN."""

    triplets: int = 2_000_000
    batch: int = 128
    learning_rate: float = 2.5e-4
    bitmaps: int = 100_000  # equations to render and train on, in whole papers


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


class BitmapCNN(EmbeddingSystem):
    """Vectors by convolutions over images; systems may share a folder of images, by default it is part of the fit."""

    name = "bitmap-cnn"
    title = "Bitmap CNN"

    def __init__(
        self,
        training: BitmapTraining | None = None,
        *,
        device: str = "auto",
        images: Path | None = None,
        log: Callable[[str], None] = lambda message: None,
        save_seconds: float = 60.0,
    ) -> None:
        self.training = training or BitmapTraining()
        self._device, self._log, self._save_seconds = device, log, save_seconds
        self._folder, self._images = images, ImageCache(images, log) if images else None
        self._network: BitmapNetwork | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """Training settings, seed of the subset, version of the rendering."""
        return {"lesson": asdict(self.training), "subset": SUBSET_SEED, "rendering": VERSION}

    def fit(self, corpus: Corpus, folder: Path) -> None:
        """Train, continuing an interrupted fit, or load a finished one; missing images need a browser."""
        device, training = choose_device(self._device), self.training
        self._images = ImageCache(self._folder or folder / "bitmaps", self._log)
        if not (folder / _DESCRIPTION_FILE).is_file():
            subset = draw_subset(corpus, training.bitmaps)
            objective = _BitmapObjective(subset, self._images.get_images(subset.forest), training, device)
            facts = self.settings | {"corpus": corpus.digest, "equations": len(subset), "papers": len(subset.papers)}
            loss = train_on_triplets(
                objective, objective.compute_loss, training, folder, facts,
                lambda message: self._log(f"{self.title}: {message}"), self._save_seconds,
            )  # fmt: skip
            save_fit(folder, _DESCRIPTION_FILE, objective.network, {"learned": facts | {"loss": loss}})
        network = BitmapNetwork()
        load_fit(folder, _DESCRIPTION_FILE, network)
        self._network = network.eval().to(device)

    @torch.no_grad()
    def encode(self, formulas: FormulaSet) -> Float32s:
        """Compute vectors of length 1, (formulas, 64); missing images are rendered and kept. Call `fit` first."""
        if self._network is None or self._images is None:
            raise BadInput("the bitmap CNN is not trained yet: call fit first")
        device, images = self._network.output.weight.device, self._images.get_images(formulas.forest)
        vectors = np.empty((len(images), DIMENSIONS), np.float32)
        size = _BATCH_SIZES[device.type]
        for start in range(0, len(images), size):
            batch = torch.from_numpy(images[start : start + size]).to(device)
            vectors[start : start + size] = self._network(batch).cpu().numpy()
        return vectors


class _BitmapObjective(nn.Module):
    """The network, the images on the device, and the loss of a step."""

    def __init__(self, corpus: Corpus, images: PackedImages, training: BitmapTraining, device: torch.device) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(training.seed)
            self.network = BitmapNetwork()
        self.to(device)
        self._images, self._device, self._batch = torch.from_numpy(images).to(device), device, training.batch
        self._sampler = TripletSampler(corpus, kinds=CONTEXT_KINDS, seed=training.seed, device=device)

    def compute_loss(self, step: int) -> Tensor:
        """Compute the triplet loss, with margin 1."""
        trees = self._sampler.draw(make_step_column(step, 1, self._device), self._batch).concatenate()[0]
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._device.type == "cuda"):
            vectors = self.network(self._images[trees])
        loss: Tensor = TripletLoss()(*vectors.chunk(3))
        return loss
