"""arXiv identifiers (`1706.03762v2`, `hep-th/9901001`, `math.AG/0309136`), alone, as names of files, in bibliographies.

Of a document only bibliography items are searched: a decimal number in the text is not an identifier.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_ARCHIVES = (
    "acc-phys|adap-org|alg-geom|ao-sci|astro-ph|atom-ph|bayes-an|chao-dyn|chem-ph|cmp-lg|comp-gas|cond-mat|cs|dg-ga"
    "|funct-an|gr-qc|hep-ex|hep-lat|hep-ph|hep-th|math-ph|math|mtrl-th|nlin|nucl-ex|nucl-th|patt-sol|physics|plasm-ph"
    "|q-alg|q-bio|q-fin|quant-ph|solv-int|stat|supr-con"
)
_NEW_MONTH = r"(?:0[7-9]|[1-9]\d)(?:0[1-9]|1[0-2])"  # the new style began in April 2007
_NEW_ID = rf"{_NEW_MONTH}\.\d{{4,5}}"
_OLD_ID = rf"(?:{_ARCHIVES})(?:\.[A-Z][A-Za-z]{{1,2}})?/\d{{2}}(?:0[1-9]|1[0-2])\d{{3}}"
_ID = re.compile(rf"(?P<base>{_NEW_ID}|(?i:{_OLD_ID}))(?:v(?P<version>[1-9][0-9]{{0,2}}))?", re.ASCII)
_OLD_FILE = re.compile(rf"(?P<archive>{_ARCHIVES})(?:\.[A-Z]{{2}})?[/_]?(?P<number>[0-9]{{7}}(?:v[0-9]{{1,3}})?)")
_PREFIX = re.compile(
    r"(?:arxiv\s*+:\s*+)?(?:(?:https?://)?(?:[a-z0-9]++\.){0,5}arxiv\.org/(?:abs|pdf|html|e-print|src|format|ps)/)?",
    re.IGNORECASE,
)
# No file that is named after an identifier has a longer name.
_MAX_NAME_CHARS = 100
_SUFFIXES = re.compile(r"(?:\.(?:gz|tgz|tar|tex|pdf|zip))+\Z", re.IGNORECASE)
# A new-style identifier needs a marker (arXiv, eprint, abs/ ...): volumes and pages look the same.
_MARKED_MONTH = re.compile(
    rf"(?:arxiv\s*+[:.]?\s*+(?:org/(?:abs|pdf|e-print)/)?|arxiv[^A-Za-z0-9]{{1,12}}|eprint\s*+=?\s*+[{{\"(\[]*+\s*+"
    rf"|abs/|pdf/|CoRR[^0-9]{{1,12}}(?:abs/)?)\s*+[{{\[(~\\]*+\s*+({_NEW_MONTH})$",
    re.IGNORECASE,
)
_OLD_ARCHIVE = re.compile(rf"(?<![A-Za-z0-9.-])(?:{_ARCHIVES})(?:\.[A-Z][A-Za-z]{{1,2}})?$", re.IGNORECASE)
# Both kinds are found by what follows their "." or "/", which is rare; then the text before is checked.
_NUMBER = re.compile(r"\.\d{4,5}(?!\d)|/\d{7}(?!\d)")
# The marker of a number stands within so many characters before it.
_MARKER_REACH = 60
_BIBLIOGRAPHY = re.compile(
    r"\\begin\s*+\{thebibliography\}.*?(?:\\end\s*+\{thebibliography\}|\Z)|\\bibitem.*?(?=\\end\s*+\{document\}|\Z)",
    re.DOTALL,
)


@dataclass(frozen=True)
class ArxivId:
    """One identifier: `base` without version; `version` 0 where none was given."""

    base: str
    version: int = 0

    @property
    def full(self) -> str:
        """The identifier with its version, if it has one."""
        return f"{self.base}v{self.version}" if self.version else self.base

    @property
    def key(self) -> str:
        """The key of the paper, the same for all versions."""
        return f"arxiv:{self.base}"

    @property
    def year(self) -> int:
        """The year of the first submission, which is part of the identifier."""
        digits = self.base.rpartition("/")[2][:2]
        return int(digits) + (1900 if int(digits) > 90 else 2000)


def parse_arxiv_id(text: str) -> ArxivId | None:
    """Parse an identifier: bare, with `arxiv:`, or an address of arxiv.org; return None for anything else."""
    text = text.strip().split("?", 1)[0].split("#", 1)[0].rstrip("/")
    prefix = _PREFIX.match(text)
    return _parse_bare_id(text[prefix.end() if prefix else 0 :].removesuffix(".pdf"))


def parse_file_name(name: str) -> ArxivId | None:
    """Return the identifier that a file is named after (`hep-th9901001.gz`, `1706.03762v2.tar.gz`), or None."""
    stem = _SUFFIXES.sub("", name.rpartition("/")[2][-_MAX_NAME_CHARS:])
    old = _OLD_FILE.fullmatch(stem)
    return _parse_bare_id(f"{old['archive']}/{old['number']}" if old else stem)


def _parse_bare_id(text: str) -> ArxivId | None:
    match = _ID.fullmatch(text)
    if match is None:
        return None
    archive, slash, number = match["base"].rpartition("/")
    return ArxivId(archive.split(".")[0].lower() + slash + number, int(match["version"] or 0))


def find_cited_ids(document: str, bibliographies: list[str]) -> list[str]:
    """Return the identifiers in the bibliography items of a document and in its .bbl and .bib texts, sorted."""
    texts = list(bibliographies)
    if "\\bibitem" in document or "thebibliography" in document:
        texts += [match[0] for match in _BIBLIOGRAPHY.finditer(document)]
    return sorted({found.base for text in texts for found in _iter_ids(text)})


def find_arxiv_id(text: str) -> ArxivId | None:
    """Return the first identifier in a text that is marked as one (`arXiv:`, `arxiv.org/abs/`), None without one."""
    return next(_iter_ids(text), None)


def _iter_ids(text: str) -> Iterator[ArxivId]:
    for match in _NUMBER.finditer(text):
        before = text[max(match.start() - _MARKER_REACH, 0) : match.start()]
        marked = (_MARKED_MONTH if match[0][0] == "." else _OLD_ARCHIVE).search(before)
        if marked and (found := _parse_bare_id(marked[marked.lastindex or 0] + match[0])):
            yield found
