"""The library on a plane: each equation's vector along the two directions in which the vectors differ most."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import orjson

from eqkin.index import VectorIndex
from eqkin.library import Library
from eqkin.search.results import MapPoints

_SPREAD = 2.0  # standard deviations at which the plane begins to bend towards its border


def points(library: Library, index: VectorIndex | None, limit: int) -> MapPoints:
    """At most `limit` equations, evenly spread over the library, and their places."""
    if index is None or not len(index):
        return MapPoints(np.zeros(0, np.int64), [], [], np.zeros((0, 2), np.float32))
    chosen = np.unique(np.linspace(0, len(index) - 1, min(limit, len(index))).round().astype(np.int64))
    trees = index.trees[chosen]
    rows = library.connection.execute(
        "SELECT e.tree, p.key || '#' || e.number, p.fields FROM equations e JOIN papers p ON p.id = e.paper "
        "WHERE e.tree IN (SELECT value FROM json_each(?)) ORDER BY e.tree",
        (orjson.dumps(trees.tolist()).decode(),),
    ).fetchall()
    known = np.array([row[0] for row in rows], np.int64)
    places = plane(index.vectors(known))
    return MapPoints(known, [row[1] for row in rows], [_first(row[2]) for row in rows], places)


def plane(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Principal components, bent into [-1, 1]: (n, 2). The same vectors give the same places."""
    centred = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    _, _, directions = np.linalg.svd(centred.T @ centred)
    axes = directions[:2]
    strongest = np.abs(axes).argmax(axis=1)
    axes = axes * np.sign(axes[[0, 1], strongest])[:, None]  # an axis has no direction of its own: choose one
    places = centred @ axes.T
    spread = np.maximum(places.std(axis=0), 1e-9) * _SPREAD
    bent: npt.NDArray[np.float32] = np.tanh(places / spread).astype(np.float32)
    return bent


def _first(fields: str) -> str:
    names = orjson.loads(fields)
    return str(names[0]) if names else ""
