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

from eqkin.errors import BadInput
from eqkin.evaluation.sets.json_file import read_json
from eqkin.evaluation.sets.relevance import normalised
from eqkin.evaluation.store import digest
from eqkin.evaluation.systems.base import Formulas
from eqkin.network.encoder import Encoder

BUNDLED = Path(__file__).parents[1] / "queries.json"
_SHORTEST = 4  # characters of a keyword: it is looked for within words too
_NAMED = 2  # keywords that stand for a query in a table
_FIELDS = {"id": str, "field": str, "latex": str, "keywords": list}


@dataclass(frozen=True)
class Query:
    """A formula to look for."""

    id: str
    field: str
    latex: str
    keywords: tuple[str, ...]  # normalised; a result counts if one of them stands in its section
    paper_keywords: bool = False  # whether they are a row of the paper's table

    @property
    def title(self) -> str:
        """Its first keywords, for tables."""
        return ", ".join([*self.keywords[:_NAMED], *(["..."] if len(self.keywords) > _NAMED else [])])


def load(path: Path = BUNDLED) -> list[Query]:
    """Read queries from a JSON list of objects with `id`, `field`, `latex` and `keywords`.

    Raises:
        BadInput: there is no such file, or an entry is not as it should be; the message says which and why.
    """
    entries = read_json(path, "a list of queries is needed")
    if not isinstance(entries, list) or not entries:
        raise BadInput(f"{path}: a list of queries is needed")
    queries = []
    for number, entry in enumerate(entries):
        problem = _problem(entry)
        if problem:
            raise BadInput(f"{path}: query {number + 1}: {problem}")
        entry = entry | {"keywords": tuple(entry["keywords"])}
        queries.append(Query(**entry))
        if [query.id for query in queries].count(entry["id"]) > 1:
            raise BadInput(f"{path}: query {number + 1}: a second one with the id {entry['id']!r}")
    return queries


def _problem(entry: Any) -> str:
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
        if not isinstance(keyword, str) or len(keyword) < _SHORTEST:
            return f"keyword {keyword!r}: a text of at least {_SHORTEST} characters is needed"
        if keyword != normalised(keyword):
            return f"keyword {keyword!r}: is looked for as {normalised(keyword)!r}, write it so"
    return ""


def digest_of(queries: Sequence[Query]) -> str:
    """Identifies formulas and keywords."""
    return digest([asdict(query) for query in queries])


def formulas(queries: Sequence[Query]) -> Formulas:
    """The queries' formulas as systems take them; raises `BadInput` for one that cannot be read, naming it."""
    latex = [query.latex for query in queries]
    return Formulas(Encoder.load().trees(latex), latex)
