"""What an experiment found, as plain records that can be saved, shown and compared."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import orjson

from eqkin.errors import BadInput, CorruptData, StorageFailed
from eqkin.statistics import Score as Score
from eqkin.storage import write_file

VERSION = 1
SMALL_RUN_SUFFIX = " (small run)"  # ends the title of a result whose figures mean nothing
MEASURED, PAPER, PUBLISHED = "measured", "paper", "published"  # where a row's figures come from


@dataclass(frozen=True)
class TableColumn:
    """A column of a table."""

    key: str
    title: str
    form: str = "share"  # "share": .507; "percent": 50.7 (the value is 0..1); "number": 1,300; "text"
    best: str = "high"  # which value is best, "high", "low" or "" for neither


@dataclass(frozen=True)
class TableRow:
    """A system's line in a table."""

    title: str
    cells: dict[str, Score | str]  # by the key of the column; columns may be missing
    origin: str = MEASURED  # or PAPER: the paper's own figure; PUBLISHED: somebody else's
    note: str = ""


@dataclass(frozen=True)
class Table:
    """A table of the report."""

    name: str  # for file names: letters, digits and hyphens
    title: str
    columns: list[TableColumn]
    rows: list[TableRow]
    caption: str = ""
    quotes: bool = False  # shows the data itself, which may not be everyone's to publish: not for Markdown


@dataclass(frozen=True)
class Curve:
    """A line, or a set of bars, in a plot."""

    title: str
    x: list[float | str]
    y: list[float]
    low: list[float] = field(default_factory=list)  # of the intervals; empty: none
    high: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Plot:
    """A plot of the report."""

    name: str  # for file names
    title: str
    x_title: str
    y_title: str
    curves: list[Curve]
    kind: str = "line"  # or "bar"
    log_x: bool = False
    caption: str = ""


@dataclass(frozen=True)
class ExampleHit:
    """A formula in a worked example."""

    rank: int
    latex: str
    mathml: str
    where: str  # title of the paper, and its section
    note: str = ""  # why it is shown


@dataclass(frozen=True)
class WorkedExample:
    """A worked example: a query and some of what it found."""

    title: str
    latex: str
    mathml: str
    hits: list[ExampleHit]
    caption: str = ""


@dataclass(frozen=True)
class ExperimentResult:
    """What one experiment found."""

    experiment: str  # its name: letters, digits and hyphens
    title: str
    claim: str  # what the paper says, in our words
    findings: list[str]  # what this data says about it, each a sentence or two
    tables: list[Table] = field(default_factory=list)
    plots: list[Plot] = field(default_factory=list)
    examples: list[WorkedExample] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)  # from the paper's protocol, and why
    facts: dict[str, str] = field(default_factory=dict)  # data and settings: digests, sizes, seeds

    def save(self, folder: Path) -> Path:
        """Write to `folder/NAME.json`; raises `StorageFailed`."""
        path = folder / f"{self.experiment}.json"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageFailed(f"{folder}: could not be made ({error.strerror or error})") from error
        option = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY
        text = orjson.dumps({"version": VERSION, **dataclasses.asdict(self)}, option=option)
        write_file(path, text + b"\n")
        return path

    @classmethod
    def load(cls, path: Path) -> ExperimentResult:
        """Read what `save` wrote; raises `BadInput` or `CorruptData`."""
        try:
            data = orjson.loads(path.read_bytes())
        except FileNotFoundError as error:
            raise BadInput(f"{path}: there is no such result") from error
        except OSError as error:
            raise BadInput(f"{path}: cannot be read ({error.strerror or error})") from error
        except ValueError as error:
            raise CorruptData(f"{path}: not JSON ({error}); run the experiment again") from error
        try:
            if data.pop("version") != VERSION:
                raise ValueError("of another version")
            if missing := {field.name for field in dataclasses.fields(cls)} - data.keys():
                raise ValueError(f"without {', '.join(sorted(missing))}")
            result: ExperimentResult = _decode(cls, data)
            return result
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CorruptData(f"{path}: not a result of this eqkin ({error}); run the experiment again") from error


def _decode(kind: Any, data: Any) -> Any:
    """A value of some type of these records from JSON; raises `KeyError`, `TypeError` or `ValueError` if it is none."""
    given = get_args(kind)
    if isinstance(kind, UnionType):
        if data is None and NoneType in given:
            return None
        return data if isinstance(data, str) and str in given else _decode(given[0], data)
    if dataclasses.is_dataclass(kind):
        fields = get_type_hints(kind)
        return kind(**{name: _decode(fields[name], value) for name, value in _check_type(dict, data).items()})  # type: ignore[operator]
    if get_origin(kind) is list:
        return [_decode(given[0], value) for value in _check_type(list, data)]
    if get_origin(kind) is dict:
        return {name: _decode(given[1], value) for name, value in _check_type(dict, data).items()}
    if kind is float:
        return math.nan if data is None else float(_check_type((int, float), data))  # JSON knows no NaN
    return _check_type(kind, data)


def _check_type(kind: Any, data: Any) -> Any:
    """The same, if it is of a kind; truth is no number."""
    if not isinstance(data, kind) or (isinstance(data, bool) and kind is not bool):
        raise ValueError(f"{data!r:.50} is of the wrong kind")
    return data
