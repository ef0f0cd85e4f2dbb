"""Which results count in the search study: those whose section has one of a query's keywords (paper, section 6).

A keyword counts wherever it stands, also within a longer word, whatever its case. One of more than 10 characters also
counts if some part of the text is at Levenshtein distance 1: then one of its halves stands there unchanged, and what
remains is compared around each place where a half stands. That is exact, and hardly slower than to look for the halves.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from eqkin.errors import BadInput
from eqkin.latex.prose import EQUATION_MARK, to_plain_text
from eqkin.library import LibraryFiles
from eqkin.library.queries import read_sections

Flags: TypeAlias = npt.NDArray[np.bool_]

MAX_EXACT_LENGTH = 10  # characters up to which a keyword has to stand there as it is
_SECTION_BATCH = 500  # sections read at once
_HYPHENS, _APOSTROPHES = "‐‑‒–—−", "‘’ʼ`´"  # ways to write - and '


def normalize(text: str) -> str:
    """Lower case, one space for any white space, one kind of hyphen and apostrophe."""
    text = unicodedata.normalize("NFC", text).lower()
    if not text.isascii() or "`" in text:
        for variants, plain in ((_HYPHENS, "-"), (_APOSTROPHES, "'")):
            for character in variants:
                text = text.replace(character, plain)
    return " ".join(text.split())


def make_section_text(title: str, latex: str) -> str:
    """Heading and prose of a section, normalised; a mark stands where a display equation stood."""
    return normalize(f"{to_plain_text(title)} {EQUATION_MARK} {to_plain_text(latex)}")


@dataclass(frozen=True)
class Keyword:
    """A keyword, and its halves if it is long enough to be found with a slip."""

    text: str  # normalised
    head: str = ""
    tail: str = ""

    @classmethod
    def parse(cls, text: str) -> Keyword:
        """A keyword as it was written."""
        text = normalize(text)
        if len(text) <= MAX_EXACT_LENGTH:
            return cls(text)
        return cls(text, text[: len(text) // 2], text[len(text) // 2 :])

    def occurs_in(self, text: str) -> bool:
        """Whether it stands in a normalised text: as it is or, if it is long, with at most one slip."""
        return self._matches_after_head(text) or self._matches_before_tail(text) if self.head else self.text in text

    def _matches_after_head(self, text: str) -> bool:
        reach = len(self.tail) + 1
        at = text.find(self.head)
        while at >= 0:
            end = at + len(self.head)
            if _starts_with_typo(text[end : end + reach], self.tail):
                return True
            at = text.find(self.head, at + 1)
        return False

    def _matches_before_tail(self, text: str) -> bool:
        reach, backwards = len(self.head) + 1, self.head[::-1]
        at = text.find(self.tail)
        while at >= 0:
            if _starts_with_typo(text[max(0, at - reach) : at][::-1], backwards):
                return True
            at = text.find(self.tail, at + 1)
        return False


def _starts_with_typo(text: str, word: str) -> bool:
    """Whether a text begins with a string at Levenshtein distance 0 or 1 of a word."""
    same = 0
    for ours, theirs in zip(text, word, strict=False):
        if ours != theirs:
            break
        same += 1
    if same == len(word):
        return True
    # at the first difference a character was left out, replaced or put in; an earlier place would do no better
    rest = word[same + 1 :]
    return text.startswith(rest, same) or text.startswith(rest, same + 1) or text.startswith(word[same:], same + 1)


def contains_any(text: str, keywords: Sequence[Keyword]) -> bool:
    """Whether one of the keywords stands in a normalised text."""
    return any(keyword.occurs_in(text) for keyword in keywords)


def find_relevant_sections(
    library: LibraryFiles,
    sections: npt.NDArray[np.int64],
    queries: Sequence[Sequence[str]],
    tell: Callable[[str], None] = lambda message: None,
) -> Flags:
    """Which sections are relevant to which queries, (queries, sections), in one pass over the sections.

    Args:
        library: Where the sections are.
        sections: Ids in its database.
        queries: The keywords of each query.
        tell: Told how far it is.

    Raises:
        BadInput: a section is not there any more.
    """
    wanted = [[Keyword.parse(keyword) for keyword in keywords] for keywords in queries]
    found = np.zeros((len(wanted), len(sections)), bool)
    told = 0
    for start in range(0, len(sections), _SECTION_BATCH):
        for at, text in enumerate(_read_texts(library, sections[start : start + _SECTION_BATCH].tolist()), start):
            found[:, at] = [contains_any(text, keywords) for keywords in wanted]
        done = min(start + _SECTION_BATCH, len(sections))
        if 10 * done // len(sections) > told:
            told = 10 * done // len(sections)
            tell(f"keywords looked for in {done:,} of {len(sections):,} sections")
    return found


def _read_texts(library: LibraryFiles, ids: list[int]) -> list[str]:
    texts = {number: make_section_text(*section) for number, section in read_sections(library, ids).items()}
    if len(texts) < len(set(ids)):
        raise BadInput(f"{library.folder}: was changed while it was read; run this again")
    return [texts[section] for section in ids]
