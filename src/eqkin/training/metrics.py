"""Metrics of a run: the JSON lines in `metrics.jsonl`, and the ranking score on held-out papers.

Each line is a record with a step. A kill or a power failure may leave an incomplete line, which readers skip.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from eqkin.encoder.torch_network import TreeNetwork
from eqkin.errors import BadInput, StorageFailed
from eqkin.statistics import RankingScore, score_ranking
from eqkin.storage import write_file
from eqkin.training.batches import DeviceForest
from eqkin.training.config import Recipe
from eqkin.training.data import Corpus
from eqkin.training.sampling import TripletSampler
from eqkin.trees import Vocabulary

METRICS_FILE = "metrics.jsonl"

MetricsRecord = dict[str, Any]


class MetricsFile:
    """The metrics of one run; only that run writes them."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, record: Mapping[str, Any]) -> None:
        """Append a record as one line, which other processes can read at once; raises `StorageFailed`.

        A record needs an integer `step`; other values may be JSON values or numbers of numpy and torch. NaN and
        infinity are written as Python's `json` does.
        """
        if not _is_step(record.get("step")):
            raise BadInput(f"a metrics record needs a step, an integer, not {record.get('step')!r}")
        try:
            line = json.dumps(dict(record), default=_to_python_number).encode() + b"\n"
        except (TypeError, ValueError, RecursionError) as error:
            raise BadInput(f"a metrics record must be JSON ({error})") from error
        try:
            with self.path.open("a+b", buffering=0) as file:
                if file.seek(0, os.SEEK_END):
                    file.seek(-1, os.SEEK_END)
                    if file.read(1) != b"\n":
                        line = b"\n" + line  # after an incomplete line
                while line:
                    line = line[file.write(line) :]
        except OSError as error:
            raise StorageFailed(f"{self.path}: could not be written ({error.strerror or error})") from error

    def rewind(self, step: int) -> None:
        """Drop the records after `step`, and incomplete lines, atomically; raises `StorageFailed`."""
        content = _read_content(self.path)
        kept = b"".join(line + b"\n" for line, record in _iter_records(content) if record["step"] <= step)
        if kept != content:
            write_file(self.path, kept)


def read_metrics(path: Path) -> list[MetricsRecord]:
    """Return all records in the order in which they were written; none without a file. Raises `StorageFailed`."""
    return [record for _, record in _iter_records(_read_content(path))]


def _read_content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise StorageFailed(f"{path}: could not be read ({error.strerror or error})") from error


def _iter_records(content: bytes) -> Iterator[tuple[bytes, MetricsRecord]]:
    """Iterate over the lines that contain a record, and their records."""
    for line in content.split(b"\n"):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict) and _is_step(record.get("step")):
            yield line, record


def _is_step(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _to_python_number(value: Any) -> Any:
    if getattr(value, "ndim", None) == 0:
        return value.item()
    raise TypeError(f"{value!r} is not a number")


class HeldOutEvaluator:
    """Computes the ranking score on held-out papers (paper, sections 5 and 6).

    Triples are drawn from the held-out papers as in training. One is ranked correctly if the anchor is more similar
    (inner product of the embeddings) to its partner than to the negative.

    Args:
        corpus: The held-out papers.
        vocabulary: The vocabulary of the network.
        recipe: Which contexts count as related.
        device: Where to compute.

    Raises:
        BadInput: No triple can be drawn from the papers.
    """

    def __init__(self, corpus: Corpus, vocabulary: Vocabulary, recipe: Recipe, device: torch.device) -> None:
        self._paper = corpus.paper
        self._forest = DeviceForest(corpus.forest, vocabulary, device)
        try:
            self._sampler = TripletSampler(corpus, kinds=recipe.contexts, seed=recipe.seed, device=device)
        except BadInput as error:
            raise BadInput(
                f"the {len(corpus.papers):,} held-out papers are too few for an evaluation ({error}): "
                "hold out more, or choose others with another split_seed"
            ) from error

    def score(self, network: TreeNetwork, triples: int) -> RankingScore:
        """Return the ranking score on the first `triples` of a fixed sequence of triples, with its interval."""
        zero = torch.zeros(1, 1, dtype=torch.int64, device=self._forest.device)
        drawn = self._sampler.draw(zero, triples).concatenate().view(3, triples)
        trees, index = torch.unique(drawn, return_inverse=True)
        anchor, partner, negative = self._forest.embed(network, trees)[index]
        papers = self._paper[drawn.T.cpu().numpy()]
        return score_ranking(_compute_products(anchor, partner), _compute_products(anchor, negative), papers)


def _compute_products(one: Tensor, other: Tensor) -> npt.NDArray[np.float32]:
    products: npt.NDArray[np.float32] = (one * other).sum(1).cpu().numpy()
    return products
