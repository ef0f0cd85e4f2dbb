"""Putting what workers read into a library, in order: nothing lost and nothing double, whoever read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from eqkin.errors import EqkinError
from eqkin.library.reading import ParsedPaper, parse_item
from eqkin.library.tasks import IngestEvent, SkippedFiles, SourceError
from eqkin.library.writer import LibraryWriter
from eqkin.sources.paper import SourceItem


@dataclass
class AddReport:
    """What `Library.add` did, so far or in the end."""

    papers: int = 0  # added or replaced
    unchanged: int = 0
    failed: Counter[str] = field(default_factory=Counter)  # papers that could not be read, by reason
    equations: Counter[str] = field(default_factory=Counter)  # by status
    problems: list[str] = field(default_factory=list)  # sources that could not be read, or not to their end
    skipped: Counter[str] = field(default_factory=Counter)  # what was left out within sources, by reason
    peak_bytes: int = 0  # the largest worker's memory

    def count_skipped(self, what: str, why: str) -> None:
        """Note something that was left out within a source."""
        self.skipped[why] += 1

    def add_source_error(self, found: SourceError) -> None:
        """Note a source that could not be read, or not to its end."""
        self.failed[found.reason] += 1
        self.problems.append(found.message)
        del self.problems[200:]

    def count_paper(self, extract: ParsedPaper) -> None:
        """Take one more extract into account."""
        self.peak_bytes = max(self.peak_bytes, extract.peak_bytes)
        if extract.unchanged:
            self.unchanged += 1
        elif extract.failure:
            self.failed[extract.failure] += 1
            named = extract.message.startswith(extract.origin) or extract.origin in extract.message[:300]
            self.problems.append(extract.message if named else f"{extract.origin}: {extract.message}")
            del self.problems[200:]
        else:
            self.papers += 1
            self.equations.update(record.status for record in extract.equations)


class Merger:
    """Takes what workers read, in the order of the sources: the library becomes the one that one process would make.

    Workers are told which papers the library had when they were sent; only here is it known what came in between.
    """

    def __init__(self, writer: LibraryWriter, report: AddReport) -> None:
        self._writer, self._report = writer, report
        self._stale: dict[str, str] = {}  # the source of papers taken for unchanged that were replaced meanwhile

    def add(self, event: IngestEvent) -> None:
        """One thing that a worker found."""
        if isinstance(event, SourceError):
            self._report.add_source_error(event)
        elif isinstance(event, SkippedFiles):
            self._report.skipped += event.reasons
        else:
            self._add_paper(event)

    def _add_paper(self, extract: ParsedPaper) -> None:
        here = bool(extract.digest) and not extract.failure and extract.digest == self._writer.find_digest(extract.key)
        if extract.unchanged and not here:
            self._stale[extract.key] = extract.source
            return
        self._stale.pop(extract.key, None)
        extract.unchanged = here
        if not here:
            self._writer.add(extract)
        self._report.count_paper(extract)

    def reread_stale(self, reopened: Callable[[str], Iterable[SourceItem]]) -> None:
        """Read what was taken for unchanged and is not: sources hold two versions of a paper, and the last one counts.

        `reopened` gives the items of a source again.
        """
        for source in dict.fromkeys(self._stale.values()):
            again = {key for key, of in self._stale.items() if of == source}
            for item in _iter_until_error(reopened(source)):
                if item.key in again:
                    extract = parse_item(item, self._writer.find_digest(item.key))
                    extract.source = source
                    self._add_paper(extract)


def _iter_until_error(items: Iterable[SourceItem]) -> Iterator[SourceItem]:
    with suppress(EqkinError):  # told when they were read first
        yield from items
