"""What a run measures on its way: losses, speed, rankings; its first process writes them into `metrics.jsonl`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from eqkin.encoder.torch_network import TreeNetwork
from eqkin.statistics import RankingScore
from eqkin.training.held_out import HeldOutEvaluator
from eqkin.training.metrics import MetricsFile, read_metrics
from eqkin.training.recipes import Recipe

METRICS_FILE = "metrics.jsonl"


class MetricsLogger:
    """The measurements of one run.

    Args:
        folder: The run's.
        recipe: What is learned.
        parts: Names of the parts of the loss.
        held_out: What to rank; None in all processes but the first, which write nothing.
    """

    def __init__(self, folder: Path, recipe: Recipe, parts: tuple[str, ...], held_out: HeldOutEvaluator | None) -> None:
        self._recipe, self._parts, self._held_out = recipe, parts, held_out
        self._metrics = MetricsFile(folder / METRICS_FILE)
        self.ranking: RankingScore | None = None
        self.last: dict[str, float] = {}  # means of the last record
        self.seconds = 0.0  # of learning, so far
        self.speed = 0.0  # triplets a second
        self._losses: list[list[float]] = []  # since the last record
        self._logged_seconds = 0.0

    def get_state(self) -> dict[str, Any]:
        """What a checkpoint keeps of it."""
        return {
            "losses": self._losses,
            "last": self.last,
            "seconds": self.seconds,
            "logged_seconds": self._logged_seconds,
        }

    def restore(self, facts: dict[str, Any]) -> None:
        """Go on from what `facts` gave, and forget what was written after that step."""
        self._losses, self.last = facts["losses"], facts["last"]
        self.seconds, self._logged_seconds = facts["seconds"], facts["logged_seconds"]
        self.rewind(facts["step"])

    def rewind(self, step: int) -> None:
        """Drop what was written after a step."""
        if self._held_out:
            self._metrics.rewind(step)

    def add(self, parts: np.ndarray, seconds: float) -> None:
        """Take note of some steps: the parts of their losses, (steps, parts), and the seconds they took."""
        self._losses += parts.tolist()
        self.seconds += seconds
        now = len(parts) * self._recipe.batch / max(seconds, 1e-9)
        self.speed = now if self.speed == 0 else 0.9 * self.speed + 0.1 * now

    def compute_means(self) -> dict[str, float]:
        """The loss and its parts since the last record."""
        means = np.mean(self._losses, axis=0) if self._losses else np.full(len(self._parts), np.nan)
        return {"loss": float(means.sum())} | dict(zip(self._parts, means.tolist(), strict=True))

    def log(self, step: int, rate: float) -> None:
        """Write a record of the losses."""
        seconds = self.seconds - self._logged_seconds
        self.last = self.compute_means()
        if self._held_out:
            self._metrics.append(
                {"step": step, "triplets": step * self._recipe.batch}
                | self.last
                | {
                    "learning_rate": rate,
                    "triplets_per_second": len(self._losses) * self._recipe.batch / max(seconds, 1e-9),
                    "seconds": self.seconds,
                }
            )
        self._losses, self._logged_seconds = [], self.seconds

    def score(self, step: int, network: TreeNetwork, triples: int) -> RankingScore | None:
        """Rank what was held out, and write a record of it."""
        if not self._held_out:
            return None
        self.ranking = self._held_out.score(network, triples)
        interval = self.ranking.interval
        record = {
            "step": step, "triplets": step * self._recipe.batch,
            "ranking": interval.score, "low": interval.low, "high": interval.high, "triples": triples,
        }  # fmt: skip
        if (step, triples) not in ((r["step"], r.get("triples")) for r in read_metrics(self._metrics.path)):
            self._metrics.append(record)  # unless a finished run was resumed
        return self.ranking
