"""Ranking any collection of formulas for any topics: TREC runs, by the similarity the engine ranks with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from eqkin.errors import BadInput
from eqkin.forest import Forest, ForestBuilder
from eqkin.network.encoder import Encoder
from eqkin.search.query import FormulaReader, OversizedFormula, UnreadableFormula

_UNREADABLE = -2.0  # below any cosine


@dataclass
class Formulas:
    """Formulas with their names; vectors of length 1, or 0 where one could not be read."""

    names: list[str]
    vectors: npt.NDArray[np.float32]
    problems: dict[str, str] = field(default_factory=dict)  # why some cannot be read, by name

    @property
    def readable(self) -> npt.NDArray[np.bool_]:
        """Which have a vector."""
        return np.array([name not in self.problems for name in self.names], bool)


def read_table(path: Path) -> list[tuple[str, str]]:
    """Lines `id<TAB>latex` of a file; empty lines are skipped.

    Raises:
        BadInput: it cannot be read, a line has no tab, or an id stands there twice or has a space in it.
    """
    table: dict[str, str] = {}
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        name, tab, latex = line.rstrip("\r").partition("\t")
        if not tab or not name or len(name.split()) != 1 or name in table:
            what = "an id of its own and" if tab else "an id, a tab and"
            raise BadInput(f"{path}, line {number}: needs {what} a formula, id<TAB>latex")
        table[name] = latex
    return list(table.items())


def read_lines(path: Path) -> list[str]:
    """The lines of a text file; raises `BadInput`."""
    try:
        return path.read_text("utf-8-sig").split("\n")
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror or error})") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from error


def encode(table: Iterable[tuple[str, str]], encoder: Encoder, reader: FormulaReader) -> Formulas:
    """Vectors of named formulas, all embedded together."""
    given, problems, builder = list(table), dict[str, str](), ForestBuilder()
    names = [name for name, _ in given]
    with ThreadPoolExecutor(reader.converters) as pool:  # the converters work outside of Python's lock
        for name, read in zip(names, pool.map(lambda row: _tried(reader, row[1]), given), strict=True):
            if isinstance(read, Forest):
                builder.add_forest(read)
            else:
                problems[name] = read
    formulas = Formulas(names, np.zeros((len(names), encoder.dimensions), np.float32), problems)
    vectors = encoder.embed(builder.build())
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    formulas.vectors[formulas.readable] = vectors / np.where(lengths > 0, lengths, 1)
    return formulas


def _tried(reader: FormulaReader, latex: str) -> Forest | str:
    """A formula's tree, or why there is none."""
    try:
        return reader.read(latex).forest
    except (UnreadableFormula, OversizedFormula) as error:
        return str(error)


def run_lines(topics: Formulas, formulas: Formulas, tag: str = "eqkin") -> Iterator[str]:
    """Lines `topic Q0 formula rank score tag` that rank all formulas for each topic; unreadable ones come last."""
    names, readable = formulas.names, formulas.readable
    for topic, vector in zip(topics.names, topics.vectors, strict=True):
        scores = np.where(readable, formulas.vectors @ vector, _UNREADABLE).astype(float)
        order = np.argsort(-scores, kind="stable")
        for rank, place in enumerate(order.tolist(), 1):
            yield f"{topic} Q0 {names[place]} {rank} {scores[place]:.6f} {tag}\n"
