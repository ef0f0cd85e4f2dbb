"""The authors' earlier work as a baseline: pictures of equations, three convolutions, triplet loss.

Differs from their published code where the paper or this comparison do: triplets are drawn as the graph network's are
(section, paper and citation), the loss is the paper's triplet loss (theirs was squared and took the harder of two
negatives), the rate rises and falls linearly (theirs fell tenfold every ten epochs) from the same height, batches have
128 triplets (theirs 100), and formulas that are too large are scaled down (theirs were cropped).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from eqkin.errors import BadInput
from eqkin.evaluation.systems.base import EmbeddingSystem, Floats, FormulaSet
from eqkin.evaluation.systems.bitmaps.bitmap_file import PackedImages
from eqkin.evaluation.systems.bitmaps.gallery import ImageCache
from eqkin.evaluation.systems.bitmaps.network import DESCRIPTION_FILE, DIMENSIONS, BitmapNetwork
from eqkin.evaluation.systems.bitmaps.rendering import VERSION
from eqkin.evaluation.systems.bitmaps.subset import SUBSET_SEED, draw_subset
from eqkin.training.checkpoint import remove_checkpoint
from eqkin.training.config import CONTEXT_KINDS, OptimizerConfig, choose_device
from eqkin.training.data import Corpus
from eqkin.training.losses import TripletLoss
from eqkin.training.randomness import make_step_column
from eqkin.training.sampling import TripletSampler
from eqkin.training.trainer import train_module

_BATCH_SIZES = {"cuda": 4_096, "cpu": 64}  # embedded at once
_LOG_SECONDS = 10.0


@dataclass(frozen=True)
class BitmapTraining:
    """How a bitmap CNN learns; chosen beforehand, nothing of it was tried out on held-out data."""

    bitmaps: int = 100_000  # equations to render and learn from, in whole papers
    triplets: int = 2_000_000
    batch: int = 128  # triplets a step
    learning_rate: float = 2.5e-4  # at its peak
    warm_up: int = 1_000  # steps until the peak, at most a tenth of all
    seed: int = 0

    @property
    def steps(self) -> int:
        """How many there are in all."""
        return -(-self.triplets // self.batch)


_DEFAULT_TRAINING = BitmapTraining()


class BitmapCNN(EmbeddingSystem):
    """Vectors by convolutions over pictures.

    Args:
        lesson: How to learn.
        device: Where: "cpu", "cuda", or "auto" for a GPU where there is one.
        gallery: A folder where pictures are kept, and found if they are there already; one for several systems saves
            rendering twice. None: `bitmaps` in the folder of what was learned.
        tell: Told how rendering and learning get on, a line at a time.
        save_seconds: Between two checkpoints.
    """

    name = "bitmap-cnn"
    title = "Bitmap CNN"

    def __init__(
        self,
        lesson: BitmapTraining = _DEFAULT_TRAINING,
        *,
        device: str = "auto",
        gallery: Path | None = None,
        tell: Callable[[str], None] = lambda message: None,
        save_seconds: float = 60.0,
    ) -> None:
        self.lesson = lesson
        self._device, self._tell, self._save_seconds = device, tell, save_seconds
        self._shared, self._gallery = gallery, ImageCache(gallery, tell) if gallery else None
        self._network: BitmapNetwork | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The lesson, which papers are drawn for it, and how formulas are shown."""
        return {"lesson": asdict(self.lesson), "subset": SUBSET_SEED, "rendering": VERSION}

    def fit(self, corpus: Corpus, folder: Path) -> None:
        """Learn, going on where an earlier try stopped, or load what was learned.

        Raises:
            BadInput: Pictures are missing and there is no browser, or no equation has a partner, or the folder holds
                something else.
            CorruptData: What was rendered or learned is damaged.
            LearningFailed: The loss is no number any more.
        """
        device = choose_device(self._device)
        self._gallery = ImageCache(self._shared or folder / "bitmaps", self._tell)
        if not (folder / DESCRIPTION_FILE).is_file():
            folder.mkdir(parents=True, exist_ok=True)
            subset = draw_subset(corpus, self.lesson.bitmaps)
            learner = _BitmapObjective(subset, self._gallery.get_images(subset.forest), self.lesson, device)
            facts = self.settings | {"corpus": corpus.digest, "equations": len(subset), "papers": len(subset.papers)}
            lesson = self.lesson
            descent = OptimizerConfig(lesson.steps, lesson.learning_rate, lesson.warm_up)
            loss = train_module(
                learner, learner.compute_loss, descent, folder,
                settings=facts, progress=self._make_progress(), save_seconds=self._save_seconds,
            )  # fmt: skip
            learner.network.save(folder, facts | {"loss": loss})
            remove_checkpoint(folder)
        self._network = BitmapNetwork.load(folder).to(device)

    def _make_progress(self) -> Callable[[int, int, float], None]:
        told = time.monotonic()

        def tell(step: int, steps: int, loss: float) -> None:
            nonlocal told
            if step == steps or time.monotonic() - told > _LOG_SECONDS:
                told = time.monotonic()
                self._tell(f"{self.title}: step {step:,} of {steps:,}, loss {loss:.3f}")

        return tell

    def encode(self, formulas: FormulaSet) -> Floats:
        """Vectors of length 1, (formulas, 64); formulas that are not in the gallery are rendered and kept there.

        Raises `BadInput` if nothing was learned, or if something has to be rendered and there is no browser.
        """
        if self._network is None or self._gallery is None:
            raise BadInput("the bitmap CNN has not learned anything yet: call fit first")
        return embed_bitmaps(self._network, self._gallery.get_images(formulas.forest))


class _BitmapObjective(nn.Module):
    """The network, the pictures on the device, and the loss of a step."""

    def __init__(self, corpus: Corpus, pictures: PackedImages, lesson: BitmapTraining, device: torch.device) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(lesson.seed)
            self.network = BitmapNetwork()
        self.to(device)
        self._pictures, self._device = torch.from_numpy(pictures).to(device), device
        self._sampler, self._batch = (
            TripletSampler(corpus, kinds=CONTEXT_KINDS, seed=lesson.seed, device=device),
            lesson.batch,
        )

    def compute_loss(self, step: int) -> Tensor:
        """The triplet loss, with margin 1."""
        trees = self._sampler.draw(make_step_column(step, 1, self._device), self._batch).concatenate()[0]
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._device.type == "cuda"):
            vectors = self.network(self._pictures[trees])
        loss: Tensor = TripletLoss()(*vectors.chunk(3))
        return loss


@torch.no_grad()
def embed_bitmaps(network: BitmapNetwork, pictures: PackedImages) -> Floats:
    """Vectors of pictures, some at a time, in single precision."""
    device = network.output.weight.device
    vectors = np.empty((len(pictures), DIMENSIONS), np.float32)
    size = _BATCH_SIZES[device.type]
    for start in range(0, len(pictures), size):
        some = torch.from_numpy(pictures[start : start + size]).to(device)
        vectors[start : start + size] = network(some).cpu().numpy()
    return vectors
