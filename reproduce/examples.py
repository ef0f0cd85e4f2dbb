"""The paper's two worked examples, Bayes' law and the Ising model, and their nearest relatives, searched in a library.

The paper: a search for a conditional probability finds Bayes' law in other notations, and, as the first other result,
the fourth, the law of total probability. A search for the energy of the Ising model finds, among the first 20 results,
papers about Boltzmann machines and papers about the Ising model.

The tables list rank, title and which of some words stand in a result's section, title or abstract; they quote no
formula.
"""

from __future__ import annotations

import re

from eqkin.evaluation.context import ExperimentContext
from eqkin.evaluation.tables import ExperimentResult, Table, TableColumn, TableRow
from eqkin.library.files import LibraryFiles
from eqkin.library.queries import count_equations, read_equation_text
from eqkin.search.engine import SearchEngine
from eqkin.search.results import Hit
from eqkin.statistics import Score
from reproduce.keywords import compute_content_digest, make_section_text

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
_COLUMNS = [TableColumn(name, name, "text", "") for name in ("title", "words")]


def run_examples(context: ExperimentContext, library: LibraryFiles) -> ExperimentResult:
    """Search a library for the examples; raises `BadInput` if it has no index of the bundled network."""
    tables, counted = [], []
    with SearchEngine(library) as engine:
        for name, (title, query) in EXAMPLES.items():
            context.log(f"searching for {title}")
            rows = []
            for rank, hit in enumerate(engine.search(query, k=_SEARCH_DEPTH).hits, 1):
                paper, text = hit.equation.paper, _read_texts(library, hit)
                found = ", ".join(word for word, pattern in WORDS.items() if pattern.search(text))
                name = _COMMAND.sub(" ", paper.title or paper.key).strip()
                rows.append(TableRow(str(rank), {"title": name, "words": found}))
            places: dict[str, Score | str] = {}
            for word in WORDS:
                ranks = [int(row.title) for row in rows if word in str(row.cells["words"]).split(", ")]
                places[word] = f"{len(ranks)}, first at {ranks[0]}" if ranks else "none"
            counted.append(TableRow(title, places))
            tables.append(Table(f"examples-{name}", title, _COLUMNS, rows[:_SHOWN], f"The first {_SHOWN} results."))
        model = engine.encoder.digest
    columns = [TableColumn(word, word, "text", "") for word in WORDS]
    caption = f"How many of the first {_SEARCH_DEPTH} results have the word in their section, title or abstract."
    counts = Table("examples", "Worked examples", columns, counted, caption)
    equations, papers = count_equations(library)
    facts = {
        "library": f"{equations:,} equations in {papers:,} papers, digest {compute_content_digest(library)[:16]}",
        "network": model[:16],
    }
    return ExperimentResult("examples", "Worked examples", [counts, *tables], facts=facts)


def _read_texts(library: LibraryFiles, hit: Hit) -> str:
    """Read section, title and abstract around an equation and its duplicates."""
    texts = []
    for name in (hit.equation.id, *hit.same):
        key, _, number = name.rpartition("#")
        row = read_equation_text(library, key, int(number))
        if row is not None:
            heading, prose, title, abstract = row
            texts += [make_section_text(heading, prose), make_section_text(title, abstract)]
    return "\n".join(texts)
