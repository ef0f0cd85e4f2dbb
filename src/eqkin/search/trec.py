"""TREC runs: rank all formulas of a file for each topic, by the relevance that a search ranks by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from eqkin.encoder.encoder import Encoder
from eqkin.errors import BadInput
from eqkin.formulas import Forest
from eqkin.formulas.engine import parse_operators
from eqkin.formulas.operators import OperatorForest
from eqkin.search.candidates import compare_collections
from eqkin.search.query import FormulaReader
from eqkin.search.wildcards import match_pattern, rank_matches_first, replace_wildcards

_UNREADABLE_SCORE = -1.0  # below any score
_MATCHED_FORMULAS = 1_000  # most relevant formulas that are compared with a topic's wildcards
_TOPICS_PER_BATCH = 128  # whose scores are in memory together


@dataclass
class EncodedFormulas:
    """Formulas with their names, and trees and unit vectors of those that could be read."""

    names: list[str]
    forest: Forest
    vectors: npt.NDArray[np.float32]
    problems: dict[str, str] = field(default_factory=dict)  # why some cannot be read, by name
    patterns: dict[str, OperatorForest] = field(default_factory=dict)  # of those with wildcards, by name

    @property
    def readable(self) -> list[str]:
        """Names of formulas that could be read."""
        return [name for name in self.names if name not in self.problems]


def read_table(path: Path) -> list[tuple[str, str]]:
    """Read lines `id<TAB>latex` of a file; empty lines are skipped.

    Raises:
        BadInput: it cannot be read, a line has no tab, or an id occurs twice or contains a space.
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
    """Read the lines of a text file; raises `BadInput`."""
    try:
        return path.read_text("utf-8-sig").split("\n")
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror or error})") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from error


def encode_formulas(
    table: Iterable[tuple[str, str]], encoder: Encoder, reader: FormulaReader, *, wildcards: bool = False
) -> EncodedFormulas:
    """Read and embed named formulas; with `wildcards`, those of topics count as letters of their own."""
    forests: list[Forest] = []
    rows = list(table)
    problems: dict[str, str] = {}
    patterns: dict[str, OperatorForest] = {}
    for (name, _), read in zip(rows, reader.iter_formulas((t for _, t in rows), wildcards=wildcards), strict=True):
        if isinstance(read, str):
            problems[name] = read
            continue
        if read.wildcards:
            patterns[name] = parse_operators(read.forest)
        forests.append(replace_wildcards(read.forest) if read.wildcards else read.forest)
    forest = Forest.concatenate(forests)
    vectors = encoder.embed(forest)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors = (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)
    return EncodedFormulas(
        names=[name for name, _ in rows], forest=forest, vectors=vectors, problems=problems, patterns=patterns
    )


def iter_run_lines(topics: EncodedFormulas, formulas: EncodedFormulas, tag: str = "eqkin") -> Iterator[str]:
    """Yield lines `topic Q0 formula rank score tag` that rank all formulas for each topic, unreadable ones last."""
    rows = _iter_scores(topics, formulas)
    unreadable = [name for name in formulas.names if name in formulas.problems]
    names = [*formulas.readable, *unreadable]
    for topic in topics.names:
        scores = np.full(len(names), _UNREADABLE_SCORE)
        if topic not in topics.problems:
            found = next(rows)
            if topic in topics.patterns:
                # Matching is slow, so that only the most relevant formulas are matched.
                best = np.argsort(-found, kind="stable")[:_MATCHED_FORMULAS].tolist()
                matches = np.zeros(len(found), np.uint8)
                matches[best] = match_pattern(topics.patterns[topic], parse_operators(formulas.forest.select(best)))
                found = rank_matches_first(found, matches)
            scores[: len(found)] = found
        order = np.argsort(-scores, kind="stable")
        for rank, number in enumerate(order.tolist(), 1):
            yield f"{topic} Q0 {names[number]} {rank} {scores[number]:.6f} {tag}\n"


def _iter_scores(topics: EncodedFormulas, formulas: EncodedFormulas) -> Iterator[npt.NDArray[np.float32]]:
    """Yield the scores of all readable formulas for each readable topic."""
    for start in range(0, len(topics.forest), _TOPICS_PER_BATCH):
        some = np.arange(start, min(start + _TOPICS_PER_BATCH, len(topics.forest)))
        asked = topics.forest.select(some)
        yield from compare_collections(asked, topics.vectors[some], formulas.forest, formulas.vectors)
