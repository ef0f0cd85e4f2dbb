"""Whether a claim of the paper holds here, as the first words of an experiment's findings say it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from eqkin.evaluation.report.formatting import clean_text
from eqkin.evaluation.results import SMALL_RUN_SUFFIX, ExperimentResult

_KINDS = {"does not hold": "refuted", "holds in part": "partly", "holds": "holds", "undecided": "undecided"}
_OPENING = re.compile(rf"({'|'.join(_KINDS)})\s*([:;,.]\s*|$)", re.IGNORECASE)


@dataclass(frozen=True)
class Verdict:
    """The first finding, taken apart."""

    words: str  # "holds", "holds in part", "does not hold", "undecided"; empty: the finding does not say
    kind: str  # of the words, one word
    finding: str  # the rest of it


def verdict(result: ExperimentResult) -> Verdict:
    """What the first finding begins with, such as "Holds in part: ...", and the rest; a small run "says nothing"."""
    first = clean_text(result.findings[0]) if result.findings else ""
    opening = _OPENING.match(first)
    if not opening:
        return Verdict("", "", first)
    words, rest = opening[1].lower(), first[opening.end() :]
    rest = rest[:1].upper() + rest[1:]
    if result.title.endswith(SMALL_RUN_SUFFIX):
        return Verdict("says nothing", _KINDS["undecided"], rest)
    return Verdict(words, _KINDS[words], rest)
