"""arXiv identifiers: `1706.03762`, `hep-th/9901001`, `math.AG/0309136`, with or without version."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NEW = r"(?P<new>\d{2}(?:0[1-9]|1[0-2])\.\d{4,5})"
_OLD = r"(?P<archive>[a-z]+(?:-[a-z]+)?)(?:\.[A-Z]{2})?%s(?P<number>\d{2}(?:0[1-9]|1[0-2])\d{3})"
_VERSION = r"(?:v(?P<version>[1-9]\d{0,2}))?"
_ID = re.compile(rf"(?:{_NEW}|{_OLD % '/'}){_VERSION}")
_FILE = re.compile(rf"(?:{_NEW}|{_OLD % '[/_]?'}){_VERSION}")
_PREFIX = re.compile(r"(?:https?://)?(?:[a-z0-9]+\.)*arxiv\.org/(?:abs|pdf|html|e-print|src|format|ps)/", re.IGNORECASE)
_SUFFIXES = re.compile(r"(?:\.(?:gz|tgz|tar|tex|pdf|zip))+\Z", re.IGNORECASE)


@dataclass(frozen=True)
class ArxivId:
    """One identifier: `base` without version; `version` 0 where none was given."""

    base: str
    version: int = 0

    @property
    def full(self) -> str:
        """Identifier with its version, if it has one."""
        return f"{self.base}v{self.version}" if self.version else self.base

    @property
    def key(self) -> str:
        """Key of the paper: the same for all its versions."""
        return f"arxiv:{self.base}"

    @property
    def year(self) -> int:
        """Year of the first submission, which the identifier tells."""
        digits = self.base.rpartition("/")[2][:2]
        return int(digits) + (1900 if int(digits) > 90 else 2000)


def parse_id(text: str) -> ArxivId | None:
    """The identifier that `text` is: bare, with `arxiv:`, or an address of arxiv.org; None if it is none."""
    text = text.strip().split("?", 1)[0].split("#", 1)[0]
    text = re.sub(r"\Aarxiv:\s*", "", text, flags=re.IGNORECASE)
    text = _PREFIX.sub("", text, count=1)
    return _from(_ID.fullmatch(re.sub(r"\.pdf\Z", "", text.rstrip("/"))))


def id_of_file(name: str) -> ArxivId | None:
    """The identifier a file is named after (`hep-th9901001.gz`, `1706.03762v2.tar.gz`); None if it is none."""
    return _from(_FILE.fullmatch(_SUFFIXES.sub("", name.rpartition("/")[2])))


def _from(match: re.Match[str] | None) -> ArxivId | None:
    if match is None:
        return None
    version = int(match["version"] or 0)
    if match["new"]:
        return ArxivId(match["new"], version)
    return ArxivId(f"{match['archive']}/{match['number']}", version)
