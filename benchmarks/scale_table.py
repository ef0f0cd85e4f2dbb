"""What `python -m benchmarks scale` measured, as tables: each figure at each size, how it grows, what 30 million would take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.scale import Record
from benchmarks.trends import GrowthTrend, fit_trend
from eqkin.errors import BadInput

ARXIV = 30_000_000  # display equations
_OWN = "Server, without mapped files"
BEGIN, END = "<!-- python -m benchmarks scale: begin -->", "<!-- python -m benchmarks scale: end -->"


@dataclass(frozen=True)
class MeasuredQuantity:
    """A figure that is measured at every size."""

    title: str
    step: str
    path: tuple[str, ...]  # where it stands among the step's figures
    shown: Callable[[float], str]
    group: str  # the table it is in

    @property
    def projected(self) -> bool:
        """Whether what was measured says what more would take.

        Searching is exact up to 100,000 vectors and uses lists above. What processes hold is mapped files, or bounded
        by the size of a segment of trees; what grows with the library is what a server has for itself.
        """
        return self.group in ("Time", "Disk") or self.title == _OWN


def format_seconds(value: float) -> str:
    """A time in the unit people would use."""
    for unit, size in (("h", 3_600.0), ("min", 60.0)):
        if value >= 2 * size:
            return f"{value / size:,.1f} {unit}"
    return f"{value:.2g} s" if value < 10 else f"{value:.0f} s"


def format_bytes(value: float) -> str:
    """Bytes in the unit people would use."""
    for unit, one in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if value >= one:
            return f"{value / one:,.3g} {unit}"
    return f"{value / 1e3:,.3g} kB"


def format_count(value: float) -> str:
    """A large number in short: 10 k, 30 M."""
    for unit, one in (("M", 1e6), ("k", 1e3)):
        if value >= one:
            return f"{value / one:,.3g} {unit}"
    return f"{value:.3g}"


def format_milliseconds(value: float) -> str:
    """A short time."""
    return f"{value:,.1f} ms"


def _quantities() -> list[MeasuredQuantity]:
    building = [
        ("Reading, all processes", "add", ("seconds",)),
        ("Reading, processor time", "add", ("processor_seconds",)),
        *((name, "index", ("steps", step)) for name, step in {
            "Embedding": "embedding", "Structure": "structure", "Lists of faiss": "indexing", "Words": "words",
        }.items()),
        ("Indexing, processor time", "index", ("processor_seconds",)),
        ("Pushing to Milvus", "push", ("seconds",)),
        ("Verifying", "verify", ("seconds",)),
        ("Reading again, nothing new", "again", ("seconds",)),
        ("28 papers more, searchable", "day", ("seconds",)),
    ]  # fmt: skip
    disk = [
        ("Corpus, packed", "grow", ("bytes",)),
        *((name, "index", ("disk", part)) for name, part in {
            "Database": "database", "Trees": "forest", "Vectors": "vectors", "Lists of faiss": "nearest",
            "Structure": "structure", "Words": "words",
        }.items()),
    ]  # fmt: skip
    memory = [
        ("Reading: the writer", "add", ("own_bytes",)),
        ("Reading: the largest worker", "add", ("helper_bytes",)),
        ("Indexing: the writer", "index", ("own_bytes",)),
        ("Indexing: the largest worker", "index", ("helper_bytes",)),
        ("Verifying", "verify", ("own_bytes",)),
        ("Server, resident", "serve", ("held", "rss")),
        (_OWN, "serve", ("held", "own")),
        ("Server of Milvus' hits", "milvus", ("held", "rss")),
    ]
    searching = [
        ("Start to first answer", "serve", ("first_seconds",), format_seconds),
        ("Search, median", "serve", ("whole_p50_ms",), format_milliseconds),
        ("Search, 99th percentile", "serve", ("whole_p99_ms",), format_milliseconds),
        ("Search for words, median", "serve", ("words", "whole_p50_ms"), format_milliseconds),
        ("Search for words, 99th percentile", "serve", ("words", "whole_p99_ms"), format_milliseconds),
        ("Through Milvus, median", "milvus", ("whole_p50_ms",), format_milliseconds),
        ("Through Milvus, 99th percentile", "milvus", ("whole_p99_ms",), format_milliseconds),
    ]
    return [
        *(MeasuredQuantity(*one, format_seconds, "Time") for one in building),
        *(MeasuredQuantity(*one, format_bytes, "Disk") for one in disk),
        *(MeasuredQuantity(*one, format_bytes, "Memory") for one in memory),
        *(MeasuredQuantity(*one, "Searching") for one in searching),
    ]


QUANTITIES = _quantities()


def get_value(records: Sequence[Record], quantity: MeasuredQuantity, size: int) -> float | None:
    """What was measured of a quantity at a size; None if it was not."""
    figures: Any = next((one["figures"] for one in records if (one["size"], one["step"]) == (size, quantity.step)), {})
    for name in quantity.path:
        figures = figures.get(name) if isinstance(figures, dict) else None
    return None if figures is None else float(figures)


def count_equations(records: Sequence[Record]) -> dict[int, int]:
    """The equations that can be searched at each size: what figures are held against."""
    return {one["size"]: one["figures"]["vectors"] for one in records if one["step"] == "index"}


def get_trend(records: Sequence[Record], quantity: MeasuredQuantity) -> GrowthTrend | None:
    """How a quantity grows with the equations that can be searched."""
    counts = count_equations(records)
    return fit_trend(list(counts.values()), [get_value(records, quantity, size) for size in counts])


def format_tables(records: Sequence[Record], target: int = ARXIV) -> str:
    """All figures as Markdown: measured, the exponent of the growth, and what it comes to at `target` equations."""
    counts = count_equations(records)
    if not counts:
        raise BadInput("nothing was measured yet")
    written = []
    projected = ["grows as", f"at {target:,}"] if len(counts) > 1 else []  # one size tells nothing of growth
    for group in dict.fromkeys(quantity.group for quantity in QUANTITIES):
        rows = [row for quantity in QUANTITIES if quantity.group == group and (row := _row(records, quantity, target))]
        head = [group, *(f"{count:,}" for count in counts.values()), *projected]
        lines = [head, ["---", *["---:"] * (len(head) - 1)], *(row[: len(head)] for row in rows)]
        written.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
    return "\n\n".join(written)


def _row(records: Sequence[Record], quantity: MeasuredQuantity, target: int) -> list[str]:
    found = get_trend(records, quantity)
    if found is None:
        return []
    values = [get_value(records, quantity, size) for size in count_equations(records)]
    cells = ["" if not one else quantity.shown(one) for one in values]
    if not quantity.projected:
        return [quantity.title, *cells, "", ""]
    grows = "(in proportion)" if found.exponent is None else f"n^{found.exponent:.2f}"
    return [quantity.title, *cells, grows, quantity.shown(found.predict(target))]


def insert_tables(document: str, written: str) -> str:
    """A Markdown text with the tables between its two marks; raises `BadInput` if it has none."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise BadInput(f"there is no place for the tables: mark it with {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{written}\n{END}{after}"
