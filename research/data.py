"""The data (paper, section 3.1): counts, papers per field, and the most frequent characters."""

from __future__ import annotations

import numpy as np

from eqkin.encoder.model import count_symbols
from eqkin.evaluation.measures import Score
from eqkin.learning.data import Corpus
from eqkin.library.files import LibraryFiles
from eqkin.library.queries import compute_statistics
from research.published import CHARACTERS, DATA_COUNTS, SUBJECT_AREAS
from research.tables import PAPER, ExperimentResult, Table, TableColumn, TableRow

SHOWN_CHARACTERS = 50
_TITLES = {
    "papers": "papers", "with_equations": "with an equation that converts", "equations": "equations",
    "citing": "papers that cite another one of the collection", "citations": "citations",
}  # fmt: skip


def describe_data(library: LibraryFiles) -> ExperimentResult:
    """Count what is in a library, with the paper's figures."""
    counts = compute_statistics(library)
    corpus = Corpus.from_library(library)
    ours = {
        "papers": counts["papers"], "with_equations": counts["papers_with_equations"],
        "equations": counts["equations"]["converted"], "citing": len(np.unique(corpus.citations[:, 0])),
        "citations": len(corpus.citations),
    }  # fmt: skip
    columns = [TableColumn(key, title, "number", "") for key, title in _TITLES.items()]
    rows = [
        TableRow("Here", {key: Score(float(value)) for key, value in ours.items()}),
        TableRow("arXiv until April 2019", {key: Score(float(value)) for key, value in DATA_COUNTS.items()}, PAPER),
    ]
    tables = [Table("counts", "Data", columns, rows)]
    fields = list(counts["fields"].items())
    characters = [one for one, _ in count_symbols([corpus.forest])[2].most_common(SHOWN_CHARACTERS)]
    lists = {
        "fields": ("Papers per field", [f"{name} {count:,}" for name, count in fields],
                   [f"{name} {count:,}" for name, count in SUBJECT_AREAS.items()]),
        "characters": (f"The {SHOWN_CHARACTERS} most frequent characters", characters, CHARACTERS.split()),
    }  # fmt: skip
    for name, (title, here, theirs) in lists.items():
        rows = [
            TableRow("Here", {"list": ", ".join(here) if name == "fields" else " ".join(here)}),
            TableRow("arXiv", {"list": ", ".join(theirs) if name == "fields" else " ".join(theirs)}, PAPER),
        ]
        tables.append(Table(name, title, [TableColumn("list", "most frequent first", "text", "")], rows))
    return ExperimentResult("data", "Data", tables)
