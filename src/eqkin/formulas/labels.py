"""What the labels of operator trees say about their nodes, and about the outline of a tree.

An outline is an operator tree without details that authors add or leave out: see `eqkin.formulas.terms`. Which labels
are details, relations or operators without an order is known to the scripts; Python asks once.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, lru_cache

import numpy as np

from eqkin.formulas.hashing import Codes, hash_string
from eqkin.formulas.kinds import LabelKinds

# The columns of what `describe_labels` returns.
LABEL_COLUMNS = 4
_MAX_CACHED_LABELS = 1 << 16
_ANY_VARIABLE = hash_string("any variable")


def describe_labels(labels: Iterable[str]) -> Codes:
    """Return what terms are made of: (labels, LABEL_COLUMNS).

    The columns are hashes of a label, of its label in an outline, of that without the name of a variable, and bits of
    `LabelKinds`.
    """
    return np.array([_describe_label(label) for label in labels], np.uint64).reshape(-1, LABEL_COLUMNS)


@lru_cache(_MAX_CACHED_LABELS)
def _describe_label(label: str) -> tuple[int, ...]:
    tables = load_label_tables()
    outline = simplify_label(label)
    kinds = (
        (LabelKinds.VARIABLE, label.startswith("v:")),
        (LabelKinds.UNORDERED, outline in tables["unordered"]),
        (LabelKinds.APPLIED, label in tables["applied"]),
        (LabelKinds.INDEXED, label == "idx"),
        (LabelKinds.DETAIL, label in tables["details"]),
        (LabelKinds.WRAPPER, label in tables["wrappers"]),
        (LabelKinds.PLAIN, label.partition(":")[0] in tables["plain"]),
    )
    outlined = hash_string(outline)
    anonymous = _ANY_VARIABLE if outline.startswith("v:") else outlined
    return hash_string(label), outlined, anonymous, sum(bit for bit, applies in kinds if applies)


def simplify_label(label: str) -> str:
    """Return the label in an outline: a variable without decoration, one kind of relation, one kind of quotient."""
    tables = load_label_tables()
    kind, _, text = label.partition(":")
    if kind == "fn":
        return f"v:{text}"
    if label.startswith("v:"):
        end = next((at for at, sign in enumerate(text) if sign in tables["decorations"]), len(text))
        return f"v:{text[:end]}" if end else label
    if label in tables["relations"]:
        return "="
    return "frac" if label == "D" else label


@cache
def load_label_tables() -> dict[str, frozenset[str]]:
    """Return the labels of each kind."""
    from eqkin.formulas.engine import borrow_engine

    with borrow_engine() as engine:
        return engine.describe_labels()
