"""Search: candidates, fusion, grouping, and why a hit was found."""

from eqkin.search.engine import Engine
from eqkin.search.query import OversizedFormula, Preview, Problem, UnreadableFormula
from eqkin.search.results import Filters

__all__ = ["Engine", "Filters", "OversizedFormula", "Preview", "Problem", "UnreadableFormula"]
