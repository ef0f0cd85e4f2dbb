"""Evaluation: measures, labelled and judged sets, systems to compare, and tables with intervals and tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eqkin.lazy import load_lazily

if TYPE_CHECKING:
    from collections.abc import Callable

    from eqkin.evaluation.experiment import Comparison, compare
    from eqkin.evaluation.judged import JudgedSet
    from eqkin.evaluation.systems.base import EmbeddingSystem, System

__all__ = ["Comparison", "EmbeddingSystem", "JudgedSet", "System", "compare"]
__getattr__: Callable[[str], Any] = load_lazily(
    __name__,
    {
        "Comparison": "eqkin.evaluation.experiment",
        "EmbeddingSystem": "eqkin.evaluation.systems.base",
        "JudgedSet": "eqkin.evaluation.judged",
        "System": "eqkin.evaluation.systems.base",
        "compare": "eqkin.evaluation.experiment",
    },
)
