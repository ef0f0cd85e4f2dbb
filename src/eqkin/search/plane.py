"""The library on a plane: each equation's vector along the two directions in which the vectors differ most."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from eqkin.search.results import MapPoints
from eqkin.search.store import Keys, Snapshot

_BEND_AT_DEVIATIONS = 2.0  # standard deviations at which the plane begins to bend towards its border


def project_equations(desk: Snapshot, keys: Keys) -> MapPoints:
    """Where equations are on the plane; those that are gone are left out."""
    places = desk.get_refs(keys.tolist())
    known = np.array(sorted(places), np.int64)
    if not len(known):
        return MapPoints(known, [], [], np.zeros((0, 2), np.float32))
    there = [places[key] for key in known.tolist()]
    fields = [place.fields[0] if place.fields else "" for place in there]
    return MapPoints(known, [place.name for place in there], fields, project_to_plane(desk.get_vectors(known)))


def project_to_plane(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Principal components, bent into [-1, 1]: (n, 2). The same vectors give the same places."""
    centred = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    _, _, directions = np.linalg.svd(centred.T @ centred)
    axes = directions[:2]
    strongest = np.abs(axes).argmax(axis=1)
    axes = axes * np.sign(axes[[0, 1], strongest])[:, None]  # an axis has no direction of its own: choose one
    places = centred @ axes.T
    spread = np.maximum(places.std(axis=0), 1e-9) * _BEND_AT_DEVIATIONS
    bent: npt.NDArray[np.float32] = np.tanh(places / spread).astype(np.float32)
    return bent
