"""The map: a collection's equations on a plane, by the principal components of their vectors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from eqkin.search.backend import Floats, Snapshot
from eqkin.search.results import MapPoints

# Standard deviations at which the map begins to bend towards its border.
_BEND_AT_DEVIATIONS = 2.0


def build_map(snapshot: Snapshot, limit: int) -> MapPoints:
    """Project equations onto a plane, evenly thinned out to `limit`; those that are gone are left out."""
    refs = snapshot.get_refs(snapshot.sample_keys(limit).tolist())
    known = np.array(sorted(refs), np.int64)
    if not len(known):
        return MapPoints(trees=known, ids=[], fields=[], coordinates=np.zeros((0, 2), np.float32))
    ordered = [refs[key] for key in known.tolist()]
    names = snapshot.get_names(refs)
    vectors = snapshot.get_vectors(known)
    project = fit_plane(vectors)
    return MapPoints(
        trees=known,
        ids=[ref.name for ref in ordered],
        fields=[ref.fields[0] if ref.fields else "" for ref in ordered],
        coordinates=project(vectors),
        names=[names.get(ref.key, "") for ref in ordered],
        project=project,
    )


def fit_plane(vectors: Floats) -> Callable[[Floats], Floats]:
    """Return the projection to the first two principal components, bent into [-1, 1]: (n, 2). Deterministic."""
    mean = vectors.mean(axis=0, dtype=np.float64)
    centred = vectors.astype(np.float64) - mean
    _, _, directions = np.linalg.svd(centred.T @ centred)
    axes = directions[:2]
    # The sign of an axis is arbitrary: fix it.
    strongest = np.abs(axes).argmax(axis=1)
    axes = axes * np.sign(axes[[0, 1], strongest])[:, None]
    spread = np.maximum((centred @ axes.T).std(axis=0), 1e-9) * _BEND_AT_DEVIATIONS

    def project(others: Floats) -> Floats:
        bent: Floats = np.tanh((others - mean) @ axes.T / spread).astype(np.float32)
        return bent

    return project
