"""arXiv identifiers in bibliographies.

Only bibliography items are searched: a decimal number in the text is not an identifier. Identifiers have no version:
`2005.01234`, `hep-th/9901001`, `math/0309136` (`math.AG/0309136` names the same paper).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

ARXIV_ARCHIVES = (
    "acc-phys|adap-org|alg-geom|ao-sci|astro-ph|atom-ph|bayes-an|chao-dyn|chem-ph|cmp-lg|comp-gas|cond-mat|cs|dg-ga"
    "|funct-an|gr-qc|hep-ex|hep-lat|hep-ph|hep-th|math-ph|math|mtrl-th|nlin|nucl-ex|nucl-th|patt-sol|physics|plasm-ph"
    "|q-alg|q-bio|q-fin|quant-ph|solv-int|stat|supr-con"
)
_NEW_MONTH = r"(?:0[7-9]|[1-9]\d)(?:0[1-9]|1[0-2])"  # the new style began in April 2007
_NEW_ID = rf"{_NEW_MONTH}\.\d{{4,5}}"
_OLD_ID = rf"(?:{ARXIV_ARCHIVES})(?:\.[A-Z][A-Za-z]{{1,2}})?/\d{{2}}(?:0[1-9]|1[0-2])\d{{3}}"
# A new-style identifier needs a marker (arXiv, eprint, abs/ ...): volumes and pages look the same.
_MARKED_MONTH = re.compile(
    rf"(?:arxiv\s*+[:.]?\s*+(?:org/(?:abs|pdf|e-print)/)?|arxiv[^A-Za-z0-9]{{1,12}}|eprint\s*+=?\s*+[{{\"(\[]*+\s*+"
    rf"|abs/|pdf/|CoRR[^0-9]{{1,12}}(?:abs/)?)\s*+[{{\[(~\\]*+\s*+({_NEW_MONTH})$",
    re.IGNORECASE,
)
_OLD_ARCHIVE = re.compile(rf"(?<![A-Za-z0-9.-])(?:{ARXIV_ARCHIVES})(?:\.[A-Z][A-Za-z]{{1,2}})?$", re.IGNORECASE)
# Both kinds are found by what follows their "." or "/", which is rare; then the text before is checked.
_NUMBER = re.compile(r"\.\d{4,5}(?!\d)|/\d{7}(?!\d)")
_MARKER_REACH = 60  # characters before a number that may contain its marker
_BIBLIOGRAPHY = re.compile(
    r"\\begin\s*+\{thebibliography\}.*?(?:\\end\s*+\{thebibliography\}|\Z)|\\bibitem.*?(?=\\end\s*+\{document\}|\Z)",
    re.DOTALL,
)


def normalise_arxiv_id(identifier: str) -> str | None:
    """Return the plain form of an arXiv identifier in any spelling, or None if it is not one."""
    text = identifier.strip()
    text = re.sub(r"^(?:https?://)?(?:[a-z]+\.)?arxiv\.org/(?:abs|pdf|e-print|html)/", "", text, flags=re.IGNORECASE)
    text = re.sub(r"^arxiv\s*:\s*", "", text, flags=re.IGNORECASE).removesuffix(".pdf")
    text = re.sub(r"v\d+$", "", text)
    if re.fullmatch(_NEW_ID, text):
        return text
    if re.fullmatch(_OLD_ID, text, re.IGNORECASE):
        archive, number = text.split("/")
        return f"{archive.split('.')[0].lower()}/{number}"
    return None


def find_cited_ids(document: str, bibliographies: list[str]) -> list[str]:
    """Return the identifiers in the bibliography items of a document and in its .bbl and .bib texts, sorted."""
    found: set[str] = set()
    texts = list(bibliographies)
    if "\\bibitem" in document or "thebibliography" in document:
        texts += [match[0] for match in _BIBLIOGRAPHY.finditer(document)]
    for text in texts:
        found.update(_iter_ids(text))
    return sorted(found)


def find_arxiv_id(text: str) -> str | None:
    """Return the first identifier in a text that is marked as one (`arXiv:`, `arxiv.org/abs/`), None without one."""
    return next(_iter_ids(text), None)


def _iter_ids(text: str) -> Iterator[str]:
    for match in _NUMBER.finditer(text):
        before = text[max(match.start() - _MARKER_REACH, 0) : match.start()]
        marked = (_MARKED_MONTH if match[0][0] == "." else _OLD_ARCHIVE).search(before)
        identifier = marked and normalise_arxiv_id((marked[1] if match[0][0] == "." else marked[0]) + match[0])
        if identifier:
            yield identifier
