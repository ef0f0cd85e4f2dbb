"""The paper's two worked examples, Bayes' law and the Ising model, searched in a library.

The paper: a search for a conditional probability finds Bayes' law in other notations, and, as the first other result,
the fourth, the law of total probability. A search for the energy of the Ising model finds, among the first 20 results,
papers about Boltzmann machines and papers about the Ising model.

The table lists the results for a person to judge. For the Ising model it marks which of the two models a result's
section, title or abstract names. Results are those of the search engine: formulas that differ only in spacing are shown
once, and at most two per paper while there are others.
"""

from __future__ import annotations

import re

from eqkin.evaluation.context import ExperimentContext
from eqkin.evaluation.tables import ExperimentResult, Table, TableColumn, TableRow
from eqkin.library import LibraryFiles
from eqkin.library.queries import count_equations, read_equation_text
from eqkin.search.engine import SearchEngine
from eqkin.search.results import Hit
from reproduce.keywords import compute_content_digest, make_section_text

BAYES_QUERY = r"P(d \mid s) = \frac{P(d,s)}{P(s)}"
ISING_QUERY = r"\sum_{i<j} w_{ij} s_i s_j + \sum_i \theta_i s_i"
EXAMPLES = {"bayes": ("Bayes' law", BAYES_QUERY), "ising": ("Ising model", ISING_QUERY)}
MODEL_PATTERNS = {"Boltzmann machine": re.compile(r"\bboltzmann machine"), "Ising": re.compile(r"\bising\b")}
_SEARCH_DEPTH = 20
_COLUMNS = [TableColumn(name, name, "text", "") for name in ("formula", "paper", "names")]


def run_examples(context: ExperimentContext, library: LibraryFiles) -> ExperimentResult:
    """Search a library for both examples; raises `BadInput` if it has no index of the bundled network."""
    tables = []
    with SearchEngine(library) as engine:
        for name, (title, query) in EXAMPLES.items():
            context.log(f"searching for {title}")
            hits = engine.search(query, k=_SEARCH_DEPTH).hits
            rows = []
            for rank, hit in enumerate(hits, 1):
                record = hit.equation
                paper = record.paper.title or record.paper.key
                paper += f", {record.section}" if record.section else ""
                text = _read_texts(library, hit)
                named = ", ".join(model for model, pattern in MODEL_PATTERNS.items() if pattern.search(text))
                rows.append(TableRow(str(rank), {"formula": record.latex, "paper": paper, "names": named}))
            counts = [sum(model in str(row.cells["names"]).split(", ") for row in rows) for model in MODEL_PATTERNS]
            named = ", ".join(f"{model}: {count}" for model, count in zip(MODEL_PATTERNS, counts, strict=True))
            caption = f"{query}. Sections, titles or abstracts that name a model: {named}."
            tables.append(Table(f"examples-{name}", title, _COLUMNS, rows, caption))
        model = engine.encoder.digest
    equations, papers = count_equations(library)
    facts = {
        "library": f"{equations:,} equations in {papers:,} papers, digest {compute_content_digest(library)[:16]}",
        "network": model[:16],
        "results": f"the first {_SEARCH_DEPTH} of each query",
    }
    return ExperimentResult("examples", "Worked examples", tables, facts=facts)


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
