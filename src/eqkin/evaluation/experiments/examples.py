"""The paper's two worked examples, Bayes' law and the Ising model, searched for in a library."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from eqkin.encoder.encoder import Encoder
from eqkin.evaluation.experiments.bayes_law import states_bayes_law, states_total_probability
from eqkin.evaluation.experiments.context import ExperimentContext
from eqkin.evaluation.results import ExampleHit, ExperimentResult, WorkedExample
from eqkin.evaluation.sets.library_formulas import compute_content_digest
from eqkin.evaluation.sets.relevance import make_section_text
from eqkin.library import LibraryFiles
from eqkin.library.queries import count_equations, read_equation_text
from eqkin.search import results as searching
from eqkin.search.engine import SearchEngine
from eqkin.trees.mathml import parse_mathml

BAYES_QUERY = r"P(d \mid s) = \frac{P(d,s)}{P(s)}"
ISING_QUERY = r"\sum_{i<j} w_{ij} s_i s_j + \sum_i \theta_i s_i"
MODEL_PATTERNS = {"Boltzmann machine": re.compile(r"\bboltzmann machine"), "Ising": re.compile(r"\bising\b")}
_SEARCH_DEPTH = 20  # results that are looked at
_SHOWN_HITS = 10  # results that are shown
_CLAIM = (
    "A search for a conditional probability finds Bayes' law in other words, and as the first result that is something "
    "else, the fourth, the law of total probability. A search for the energy of the Ising model finds, among the first "
    "20 results, papers that speak of Boltzmann machines and papers that speak of the Ising model."
)


@dataclass(frozen=True)
class _ExampleResults:
    """What one of the queries found."""

    latex: str
    mathml: str
    hits: Sequence[searching.Hit]

    def to_example(self, title: str, notes: dict[int, str], caption: str) -> WorkedExample:
        """The first results and those that have a note, by their place in the list."""
        shown = sorted({*range(min(_SHOWN_HITS, len(self.hits))), *notes})
        return WorkedExample(
            title, self.latex, self.mathml, [_to_example_hit(self.hits[at], at, notes) for at in shown], caption
        )


def run_examples(
    context: ExperimentContext, library: LibraryFiles | str | os.PathLike[str], encoder: Encoder | None = None
) -> ExperimentResult:
    """Search a library for both, as the search engine answers a person.

    Args:
        context: The surroundings.
        library: A library or its folder; searched by its index.
        encoder: The network the index was made with; by default the bundled one.

    Raises:
        BadInput: there is no library, or it has no index of that network.
    """
    if not isinstance(library, LibraryFiles):
        with LibraryFiles.open(library, create=False) as opened:
            return run_examples(context, opened, encoder)
    with SearchEngine(library, encoder) as engine:
        context.log("searching for Bayes' law and the Ising model")
        bayes, ising = _search_example(engine, BAYES_QUERY), _search_example(engine, ISING_QUERY)
        model = engine.encoder.digest
    equations, papers = count_equations(library)
    law, laws, total = _bayes(bayes)
    models, spoken = _ising(library, ising)
    other = laws.index(False) if False in laws else None  # the first result that is something else
    held = [any(laws), total is not None and total == other, *(at is not None for at in spoken.values())]
    word = "Holds" if all(held) else "Holds in part" if any(held) else "Does not hold"
    return ExperimentResult(
        "examples",
        "Worked examples",
        _CLAIM,
        [f"{word}: {_bayes_words(laws, total)}", _ising_words(ising, spoken)],
        examples=[law, models],
        differences=[
            "Results are those of the search engine: formulas that are the same but for spacing are shown once, and at "
            "most two of a paper as long as there are others.",
            "What is Bayes' law, and what the law of total probability, is decided by the shape of the formula; which "
            "model a result is about, by whether its section, or its paper's title or abstract, names it.",
        ],
        facts={
            "library": f"{equations:,} equations in {papers:,} papers, digest {compute_content_digest(library)[:16]}",
            "network": model[:16],
            "results looked at": f"{_SEARCH_DEPTH} of each query",
        },
    )


def _search_example(engine: SearchEngine, latex: str) -> _ExampleResults:
    found = engine.search(latex, k=_SEARCH_DEPTH)
    return _ExampleResults(latex, found.mathml, found.hits)


def _bayes(found: _ExampleResults) -> tuple[WorkedExample, list[bool], int | None]:
    """The example, which results state the law, and the place of the first law of total probability."""
    trees = [parse_mathml(hit.equation.mathml) for hit in found.hits]
    laws = [states_bayes_law(tree) for tree in trees]
    totals = [states_total_probability(tree) for tree in trees]
    notes: dict[int, str] = {}
    if laws:
        notes[0] = f"the first result: {'states' if laws[0] else 'does not state'} Bayes' law"
    if False in laws:
        at = laws.index(False)
        what = " but the law of total probability" if totals[at] else ""
        said = f"the first result that does not state Bayes' law{what}"
        notes[at] = f"{notes[at]}; {said}" if at in notes else said
    total = totals.index(True) if True in totals else None
    if total is not None and total not in notes:
        notes[total] = "the first law of total probability"
    caption = f"{sum(laws)} of the first {len(laws)} results state Bayes' law."
    return found.to_example("Bayes' law", notes, caption), laws, total


def _bayes_words(laws: Sequence[bool], total: int | None) -> str:
    said = f"of the first {len(laws)} results for a conditional probability {sum(laws)} state Bayes' law"
    if any(laws):
        said += ", the first one among them" if laws[0] else f", the first of them at place {laws.index(True) + 1}"
    if total is None:
        return f"{said}; none is the law of total probability."
    return f"{said}; the law of total probability comes at place {total + 1}."


def _ising(library: LibraryFiles, found: _ExampleResults) -> tuple[WorkedExample, dict[str, int | None]]:
    """The example, and the first result that speaks of each of the models."""
    texts = [_read_texts(library, hit) for hit in found.hits]
    spoken: dict[str, int | None] = {}
    counts, notes = {}, dict[int, str]()
    for name, pattern in MODEL_PATTERNS.items():
        named = [at for at, text in enumerate(texts) if pattern.search(text)]
        counts[name], spoken[name] = len(named), named[0] if named else None
        if named:
            said = f"the first result that speaks of {name}"
            notes[named[0]] = f"{notes[named[0]]}; {said}" if named[0] in notes else said
    caption = ", ".join(f"{count} speak of {name}" for name, count in counts.items())
    return found.to_example("Ising model", notes, f"Of the first {len(texts)} results {caption}."), spoken


def _ising_words(found: _ExampleResults, spoken: dict[str, int | None]) -> str:
    said = [
        f"none speaks of {name}" if at is None else f"the first that speaks of {name} comes at place {at + 1}"
        for name, at in spoken.items()
    ]
    return f"Among the first {len(found.hits)} results for the energy of the Ising model {', '.join(said)}."


def _read_texts(library: LibraryFiles, hit: searching.Hit) -> str:
    """What stands around an equation and those folded into it: section, title and abstract."""
    found = []
    for name in (hit.equation.id, *hit.same):
        key, _, number = name.rpartition("#")
        row = read_equation_text(library, key, int(number))
        if row is not None:
            heading, prose, title, abstract = row
            found += [make_section_text(heading, prose), make_section_text(title, abstract)]
    return "\n".join(found)


def _to_example_hit(hit: searching.Hit, at: int, notes: dict[int, str]) -> ExampleHit:
    record = hit.equation
    where = record.paper.title or record.paper.key
    where += f", {record.section}" if record.section else ""
    return ExampleHit(at + 1, record.latex, record.mathml, where, notes.get(at, ""))
