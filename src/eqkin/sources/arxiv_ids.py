"""arXiv identifiers: `1706.03762`, `hep-th/9901001`, `math.AG/0309136`, with or without version."""

from __future__ import annotations

import re
from dataclasses import dataclass

from eqkin.latex.citations import ARXIV_ARCHIVES, normalise_arxiv_id

_ID = re.compile(r"(?P<base>(?:[a-zA-Z][a-zA-Z.-]{0,20}/)?[0-9.]{7,10})(?:v(?P<version>[1-9][0-9]{0,2}))?")
_OLD_FILE = re.compile(rf"(?P<archive>{ARXIV_ARCHIVES})(?:\.[A-Z]{{2}})?[/_]?(?P<number>[0-9]{{7}}(?:v[0-9]{{1,3}})?)")
_PREFIX = re.compile(
    r"(?:arxiv\s*+:\s*+)?(?:(?:https?://)?(?:[a-z0-9]++\.){0,5}arxiv\.org/(?:abs|pdf|html|e-print|src|format|ps)/)?",
    re.IGNORECASE,
)
_MAX_NAME_CHARS = 100  # no file named after an identifier has a longer name
_SUFFIXES = re.compile(r"(?:\.(?:gz|tgz|tar|tex|pdf|zip))+\Z", re.IGNORECASE)


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
    base = normalise_arxiv_id(match["base"]) if match else None
    return ArxivId(base, int(match["version"] or 0)) if match and base else None
