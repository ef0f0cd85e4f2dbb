"""The queries of the search study: formulas from many fields, each with the keywords by which its results are judged.

Those with `paper_keywords` have the keywords that the paper prints in its table of single queries, less two: "erm" and
"lima" stand within everyday words ("term", "climate"), so they would count nearly everywhere. Its formulas are not
printed; ours are what the keywords speak of.

Keywords are chosen by what a text about the formula says, never by what a system finds. They are long enough not to
stand within other words, nor at one slip from them: "ising model" is in "using model" but for a letter, "action
potential" in "interaction potential".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from eqkin.encoder.encoder import Encoder
from eqkin.errors import BadInput
from eqkin.evaluation.sets.json_file import read_json
from eqkin.evaluation.sets.relevance import normalize
from eqkin.evaluation.store import compute_digest
from eqkin.evaluation.systems.base import FormulaSet

BUNDLED = Path(__file__).parents[1] / "queries.json"
_MIN_KEYWORD_LENGTH = 4  # characters of a keyword: it is looked for within words too
_TITLE_KEYWORDS = 2  # keywords that stand for a query in a table
_FIELDS = {"id": str, "field": str, "latex": str, "keywords": list}


@dataclass(frozen=True)
class StudyQuery:
    """A formula to look for."""

    id: str
    field: str
    latex: str
    keywords: tuple[str, ...]  # normalised; a result counts if one of them stands in its section
    paper_keywords: bool = False  # whether they are a row of the paper's table

    @property
    def title(self) -> str:
        """Its first keywords, for tables."""
        return ", ".join([*self.keywords[:_TITLE_KEYWORDS], *(["..."] if len(self.keywords) > _TITLE_KEYWORDS else [])])


def load_queries(path: Path = BUNDLED) -> list[StudyQuery]:
    """Read queries from a JSON list of objects with `id`, `field`, `latex` and `keywords`.

    Raises:
        BadInput: there is no such file, or an entry is not as it should be; the message says which and why.
    """
    entries = read_json(path, "a list of queries is needed")
    if not isinstance(entries, list) or not entries:
        raise BadInput(f"{path}: a list of queries is needed")
    queries = []
    for number, entry in enumerate(entries):
        problem = _find_problem(entry)
        if problem:
            raise BadInput(f"{path}: query {number + 1}: {problem}")
        entry = entry | {"keywords": tuple(entry["keywords"])}
        queries.append(StudyQuery(**entry))
        if [query.id for query in queries].count(entry["id"]) > 1:
            raise BadInput(f"{path}: query {number + 1}: a second one with the id {entry['id']!r}")
    return queries


def _find_problem(entry: Any) -> str:
    """What is wrong with an entry; nothing: ""."""
    if not isinstance(entry, dict):
        return "not an object"
    for name, kind in _FIELDS.items():
        if not isinstance(entry.get(name), kind) or not entry[name]:
            return f'"{name}" is missing, empty or of the wrong kind'
    if not isinstance(entry.get("paper_keywords", False), bool):
        return '"paper_keywords" is true or false'
    unknown = sorted(entry.keys() - _FIELDS.keys() - {"paper_keywords"})
    if unknown:
        return f"unknown: {', '.join(unknown)}"
    for keyword in entry["keywords"]:
        if not isinstance(keyword, str) or len(keyword) < _MIN_KEYWORD_LENGTH:
            return f"keyword {keyword!r}: a text of at least {_MIN_KEYWORD_LENGTH} characters is needed"
        if keyword != normalize(keyword):
            return f"keyword {keyword!r}: is looked for as {normalize(keyword)!r}, write it so"
    return ""


def compute_queries_digest(queries: Sequence[StudyQuery]) -> str:
    """Identifies formulas and keywords."""
    return compute_digest([asdict(query) for query in queries])


def read_query_formulas(queries: Sequence[StudyQuery]) -> FormulaSet:
    """The queries' formulas as systems take them; raises `BadInput` for one that cannot be read, naming it."""
    latex = [query.latex for query in queries]
    return FormulaSet(Encoder.load().parse_formulas(latex), latex)
