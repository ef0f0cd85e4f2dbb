"""Presentation trees to operator trees, by a precedence parser in the embedded JavaScript engine.

`operators.js` holds the grammar and the table of equivalent notations. In Python the same parser would take fifty times
as long, and the engine is needed for KaTeX anyway.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import resources

import numpy as np
import orjson
from py_mini_racer import MiniRacer

from eqkin.trees.forest import Forest
from eqkin.trees.operators import OperatorForest

_BATCH_NODES = 40_000  # of presentation trees parsed in one call
_CODE_OFFSET = 256  # as in operators.js
_COLUMNS = 5  # of the answer


class OperatorParser:
    """Parses presentation trees. Not safe to share between threads."""

    def __init__(self) -> None:
        self._engine: MiniRacer | None = None

    def parse(self, forest: Forest, *, canonical: bool = True) -> OperatorForest:
        """Parse every tree; whatever has no meaning keeps its presentation structure.

        Args:
            forest: Presentation trees.
            canonical: Write equivalent notations alike (`a/b` and a fraction, `x^{1/2}` and a root, `a > b` and `b < a`).
        """
        labels: dict[str, int] = {}
        columns = [np.zeros((_COLUMNS, 0), np.int64)]
        sizes: list[int] = []
        unparsed: list[int] = []
        for first, last in _iter_batches(forest):
            header, nodes = self._call(forest.select(np.arange(first, last)), canonical).split("\n", 1)
            answer = orjson.loads(header)
            sizes += answer["sizes"]
            unparsed += answer["unparsed"]
            block = (
                np.frombuffer(nodes.encode("utf-16-le"), "<u2").astype(np.int64).reshape(_COLUMNS, -1) - _CODE_OFFSET
            )
            block[0] = np.array([labels.setdefault(name, len(labels)) for name in answer["labels"]], np.int64)[block[0]]
            columns.append(block)
        label, parent, origin, depth, position = np.concatenate(columns, axis=1)
        offsets = np.concatenate(([0], np.cumsum(np.array(sizes, np.int64))))
        parent = parent + np.repeat(offsets[:-1], sizes)
        return OperatorForest(
            list(labels), label, parent, origin, depth, position, offsets, np.array(unparsed, np.int64)
        )

    def _call(self, forest: Forest, canonical: bool) -> str:
        columns = np.stack(
            [np.asarray(c, np.int64) for c in (forest.tag, forest.attribute, forest.text, forest.n_children)]
        )
        batch = {
            "tags": forest.tags,
            "attributes": forest.attributes,
            "texts": forest.texts,
            "sizes": forest.sizes.tolist(),
            "nodes": (columns.ravel() + _CODE_OFFSET).astype("<u2").tobytes().decode("utf-16-le"),
            "canonical": canonical,
        }
        if self._engine is None:
            self._engine = MiniRacer()
            self._engine.eval(_load_script())
        payload = orjson.dumps(orjson.dumps(batch).decode()).decode()
        return str(self._engine.eval(f"parseOperators({payload})"))


@cache
def _load_script() -> str:
    return resources.files("eqkin.mathml").joinpath("operators.js").read_text("utf-8")


def _iter_batches(forest: Forest) -> Iterator[tuple[int, int]]:
    first = 0
    while first < len(forest):
        end = int(np.searchsorted(forest.offsets, forest.offsets[first] + _BATCH_NODES, "right")) - 1
        yield first, max(first + 1, end)
        first = max(first + 1, end)
