"""Names of laws: which one a query means, which names begin with a text, and which law a formula states.

The atlas knows the names and formulas of some thousand laws; libraries add the names that their texts give to equations
(`eqkin.latex.names`, stored with the text index).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache

import numpy as np

from eqkin.atlas import load_forms, load_names, read_formula
from eqkin.formulas.operators import FORM_KINDS, OperatorForest
from eqkin.latex.names import normalise_name

MAX_NAME_CHARACTERS = 80
_MAX_NAME_WORDS = 7
_MIN_SIMILARITY = 0.86  # of a misspelled name
_KIND_WORDS = frozenset(
    "law theorem rule formula formulae equation identity relation inequality approximation principle lemma model method"
    " function distribution of in for and".split()
)
_CONDITION = re.compile(r"[,;]?\s*\\q?quad\s*\S.{0,40}$")  # at the end of a law, such as `n \to \infty`
# The forms of whole formulas by which laws are known: with their names, and consistently renamed.
NAMED_FORMS = [FORM_KINDS.index("canonical"), FORM_KINDS.index("renamed")]
_MIN_NODES = 7  # of a formula that the atlas names if its letters are the same
_MIN_RENAMED_NODES = 12  # if its letters differ


@dataclass(frozen=True)
class Completion:
    """A name that begins with what was typed."""

    name: str
    count: int = 0  # equations of the library with this name
    latex: str = ""  # if the atlas has it


@cache
def load_atlas_keys() -> dict[str, tuple[str, str]]:
    """Return name and equation (`field:label`) of each law, by its normalised name; the first of several counts."""
    keys: dict[str, tuple[str, str]] = {}
    ranked = ((place, name, member) for member, names in load_names().items() for place, name in enumerate(names))
    for _, name, member in sorted(ranked, key=lambda entry: entry[0]):
        keys.setdefault(normalise_name(name), (name, member))
    return keys


@cache
def _load_special_words() -> dict[frozenset[str], list[str]]:
    """Return the normalised names by their words without "law", "theorem" and the like."""
    found: dict[frozenset[str], list[str]] = defaultdict(list)
    for key in load_atlas_keys():
        found[frozenset(key.split()) - _KIND_WORDS].append(key)
    return found


def match_atlas_name(text: str) -> str:
    """Return the normalised name of the law that a text names, also if it is slightly misspelled; "" for none."""
    key = normalise_name(text[: 2 * MAX_NAME_CHARACTERS])
    if not key or len(text) > MAX_NAME_CHARACTERS:
        return ""
    keys = load_atlas_keys()
    if key in keys:
        return key
    # "Bayes theorem" is "Bayes' law": words such as law and theorem may differ if only one law has the others.
    special = frozenset(key.split()) - _KIND_WORDS
    others = _load_special_words().get(special, [])
    if others and special and (len(others) == 1 or not _KIND_WORDS.intersection(key.split())):
        return others[0]
    # Comparing letter by letter is slow, so misspellings must keep the first letter and nearly the length.
    best = ""
    similarity = _MIN_SIMILARITY
    for other in keys:
        if abs(len(other) - len(key)) <= 3 and len(key) > 5 and other[0] == key[0]:
            matcher = SequenceMatcher(None, key, other, autojunk=False)
            if matcher.quick_ratio() > similarity and (ratio := matcher.ratio()) > similarity:
                best = other
                similarity = ratio
    if best and len(best.split()) == len(key.split()) and _differ_in_spelling(key, best):
        return best
    return ""


def find_contained_name(text: str) -> str:
    """Return the longest normalised name of a law, of two words at least, that a text contains; "" for none."""
    words = normalise_name(text[: 4 * MAX_NAME_CHARACTERS]).split()
    keys = load_atlas_keys()
    for length in range(min(len(words) - 1, _MAX_NAME_WORDS), 1, -1):
        for start in range(len(words) - length + 1):
            if (key := " ".join(words[start : start + length])) in keys:
                return key
    return ""


def _differ_in_spelling(text: str, name: str) -> bool:
    """Return whether each word is nearly the same; "first law" is not a misspelled "fick law"."""
    pairs = zip(text.split(), name.split(), strict=True)
    return all(SequenceMatcher(None, one, other).ratio() > 0.74 for one, other in pairs)


def find_atlas_name(text: str) -> tuple[str, str]:
    """Return name and LaTeX of the law that a text names, alone or among other words; ("", "") for none."""
    key = match_atlas_name(text) or find_contained_name(text)
    if not key:
        return "", ""
    name, member = load_atlas_keys()[key]
    latex = read_formula(member)
    # A condition at the end, such as the range of an index, would count as a part of the law.
    return name, _CONDITION.sub("", latex) if latex.count("quad") == 1 else latex


def list_completions(text: str, counted: Iterable[tuple[str, int]], k: int) -> list[Completion]:
    """Return names with a word that begins like the text: those of a library by frequency, then those of the atlas."""
    key = normalise_name(text)
    if not key:
        return []
    found: dict[str, Completion] = {}
    for name, count in counted:
        found.setdefault(normalise_name(name), Completion(name, count))
    keys = load_atlas_keys()
    for known, (name, _) in keys.items():
        if known.startswith(key) or f" {key}" in known:
            found.setdefault(known, Completion(name))
    ranked = sorted(found, key=lambda other: (not other.startswith(key), -found[other].count))[:k]
    return [
        Completion(found[other].name, found[other].count, read_formula(keys[other][1]) if other in keys else "")
        for other in ranked
    ]


@cache
def _load_named_forms() -> tuple[dict[int, str], dict[int, str]]:
    """Return the names of laws by their form, with their letters and without; forms of two laws have no name.

    The forms are stored, since converting a thousand formulas takes seconds (`tests/search/test_names.py`).
    """
    forms = np.frombuffer(load_forms(), "<u4").reshape(-1, 2)
    tables: tuple[dict[int, str], dict[int, str]] = {}, {}
    for row, names in zip(forms.tolist(), load_names().values(), strict=True):
        for table, form in zip(tables, row, strict=True):
            table[form] = names[0] if table.get(form, names[0]) == names[0] else ""
    return tables


def name_forms(operators: OperatorForest) -> list[str | None]:
    """Return for each formula the name of the law of the atlas that it states, in these or other letters."""
    canonical, renamed = _load_named_forms()
    sizes = np.diff(operators.offsets).tolist()
    names = []
    for size, (same, other) in zip(sizes, operators.formula_forms[:, NAMED_FORMS].tolist(), strict=True):
        # Short formulas, above all with other letters, state many things: a name would often be wrong.
        name = canonical.get(same) if size >= _MIN_NODES else None
        if not name and size >= _MIN_RENAMED_NODES:
            name = renamed.get(other)
        names.append(name or None)
    return names
