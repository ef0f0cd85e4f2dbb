"""The paper's two worked examples, Bayes' law and the Ising model, and their nearest relatives, searched in a library.

The paper: a search for a conditional probability finds Bayes' law in other notations, and, as the first other result,
the fourth, the law of total probability. A search for the energy of the Ising model finds, among the first 20 results,
papers about Boltzmann machines and papers about the Ising model.

The library is searched by eqkin's engine and by the vectors of the bundled network of the paper alone. The tables list
rank, title and which of some words stand in a result's section, title or abstract; they quote no formula.
"""

from __future__ import annotations

import re

import numpy as np

from eqkin.encoder.encoder import Encoder
from eqkin.evaluation.measures import Score
from eqkin.evaluation.systems import FormulaSet, NetworkSystem
from eqkin.library.files import LibraryFiles
from eqkin.library.queries import count_equations
from eqkin.search.engine import SearchEngine
from research.experiment import Experiment
from research.keywords import make_section_text, read_library_formulas
from research.tables import ExperimentResult, Table, TableColumn, TableRow

EXAMPLES = {
    "bayes": ("Bayes' law", r"P(d \mid s) = \frac{P(d,s)}{P(s)}"),
    "total": ("Total probability", r"P(d) = \sum_s P(d \mid s) P(s)"),
    "ising": ("Ising model", r"\sum_{i<j} w_{ij} s_i s_j + \sum_i \theta_i s_i"),
    "boltzmann": ("Boltzmann distribution", r"p(s) = \frac{1}{Z} e^{-E(s) / T}"),
}
WORDS = {
    "Bayes": re.compile(r"\bbayes"),
    "total probability": re.compile(r"\btotal probability"),
    "conditional": re.compile(r"\bconditional (?:probabilit|distribution|densit)"),
    "Ising": re.compile(r"\bising\b"),
    "Boltzmann machine": re.compile(r"\bboltzmann machine"),
    "Boltzmann": re.compile(r"\bboltzmann\b"),
}
_SEARCH_DEPTH, _SHOWN = 20, 10
_COMMAND = re.compile(r"\\[a-zA-Z]*[ {}]*")
_SYSTEMS = {"eqkin": "eqkin", "paper": "paper's network"}


def run_examples(experiment: Experiment, library: LibraryFiles) -> ExperimentResult:
    """Search a library for the examples; raises `BadInput` if it has no index of the bundled network."""
    tables, counted = [], []
    with SearchEngine(library) as engine:
        experiment.log("embedding the library with the paper's network")
        found = {"paper": rank_by_vector(library)}
        hits = {name: engine.search(query, k=_SEARCH_DEPTH).hits for name, (_, query) in EXAMPLES.items()}
        found["eqkin"] = {name: [(hit.equation.id, *hit.same) for hit in some] for name, some in hits.items()}
        model = engine.encoder.digest
    for name, (title, _) in EXAMPLES.items():
        shown: list[dict[str, Score | str]] = [{} for _ in range(_SEARCH_DEPTH)]
        for system, by in _SYSTEMS.items():
            places: dict[str, list[int]] = {word: [] for word in WORDS}
            for rank, same in enumerate(found[system][name], 1):
                heading, text = _read_texts(library, same)
                words = [word for word, pattern in WORDS.items() if pattern.search(text)]
                for word in words:
                    places[word].append(rank)
                shown[rank - 1] |= {f"{system}-title": heading, f"{system}-words": ", ".join(words)}
            cells = {word: f"{len(ranks)}, first at {ranks[0]}" if ranks else "none" for word, ranks in places.items()}
            counted.append(TableRow(f"{title}, {by}", dict(cells)))
        columns = [
            TableColumn(f"{system}-{key}", f"{by}: {key}", "text", "")
            for system, by in _SYSTEMS.items()
            for key in ("title", "words")
        ]
        rows = [TableRow(str(rank), cells) for rank, cells in enumerate(shown[:_SHOWN], 1) if cells]
        tables.append(Table(f"examples-{name}", title, columns, rows, f"The first {_SHOWN} results."))
    columns = [TableColumn(word, word, "text", "") for word in WORDS]
    caption = f"How many of the first {_SEARCH_DEPTH} results have the word in their section, title or abstract."
    counts = Table("examples", "Worked examples", columns, counted, caption)
    equations, papers = count_equations(library)
    facts = {
        "library": f"{equations:,} equations in {papers:,} papers",
        "network": model[:16],
    }
    return ExperimentResult("examples", "Worked examples", [counts, *tables], facts=facts)


def rank_by_vector(library: LibraryFiles) -> dict[str, list[tuple[str, ...]]]:
    """Rank all equations for each example by the paper's network; equal formulas are one result."""
    corpus, formulas = read_library_formulas(library)
    queries = [query for _, query in EXAMPLES.values()]
    system = NetworkSystem("paper", "Paper's network", "paper")
    scores = system.rank(FormulaSet(Encoder.load().parse_formulas(queries), queries), formulas)
    found = {}
    for name, row in zip(EXAMPLES, scores, strict=True):
        results: dict[str, list[str]] = {}
        for tree in np.argsort(-row, kind="stable").tolist():
            latex = "".join((formulas.latex or ())[tree].split())
            if latex not in results and len(results) == _SEARCH_DEPTH:
                break
            results.setdefault(latex, []).append(corpus.get_equation_id(tree))
        found[name] = [tuple(same) for same in results.values()]
    return found


_SELECT_TEXT = """
SELECT s.title, decompress_text(s.prose), p.title, p.abstract
FROM papers p JOIN equations e ON e.paper = p.id JOIN sections s ON s.id = e.section WHERE p.key = ? AND e.number = ?
"""


def _read_texts(library: LibraryFiles, equations: tuple[str, ...]) -> tuple[str, str]:
    """Return the title of the first paper, and sections, titles and abstracts around all equations."""
    texts, shown = [], ""
    for name in equations:
        key, _, number = name.rpartition("#")
        row = library.connection.execute(_SELECT_TEXT, (key, int(number))).fetchone()
        if row is not None:
            heading, prose, title, abstract = row
            texts += [make_section_text(heading, prose), make_section_text(title, abstract)]
            shown = shown or _COMMAND.sub(" ", title or key).strip()
    return shown, "\n".join(texts)
