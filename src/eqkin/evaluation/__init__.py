"""Evaluation: measures, labelled and judged sets, systems to compare, with intervals and tests."""

from eqkin.evaluation.comparison import Comparison, compare
from eqkin.evaluation.judged import JudgedSet
from eqkin.evaluation.labelled import LabelledSet
from eqkin.evaluation.systems import EmbeddingSystem, System

__all__ = ["Comparison", "EmbeddingSystem", "JudgedSet", "LabelledSet", "System", "compare"]
