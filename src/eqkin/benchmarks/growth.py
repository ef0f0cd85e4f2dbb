"""A corpus of any size from a smaller one: bulk tars as arXiv ships them, of papers that nobody wrote.

Each paper puts pieces of several papers of one field together and renames the letters of all its formulas by one
permutation: equations that are new, and like the old ones in size and shape. The same seed gives the same bytes, and a
larger corpus begins with the smaller one. Every tar is written whole or not at all; those that are there are skipped.
"""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from eqkin.benchmarks.pieces import Pieces, Places, opened
from eqkin.benchmarks.recombined import described, written
from eqkin.errors import BadInput
from eqkin.library.durable import write_file, write_stream

METADATA = "arxiv-metadata-oai-snapshot.json"
PAPERS = 100  # a tar
_ABOUT, _PARTS = "growth.json", ".metadata"  # hidden: who reads the folder finds only tars and the snapshot
_VERSION = 1
_FIRST_YEAR, _MONTHS = 2015, 120
_MEAN, _SPREAD, _LONGEST = 24, 0.9, 400  # equations of a paper; with the rest of its last piece about 31, as on arXiv
_CITED = 5  # papers a paper cites by their identifiers, on average
_FILES = 3  # every so manieth paper is a tar of several files rather than one file
_PACKED = 5  # level of gzip
_EPOCH = 1_420_070_400  # when all files were "written": the same bytes every time


@dataclass
class Growth:
    """What was grown, so far or in the end."""

    folder: Path
    papers: int = 0
    equations: int = 0  # as they stand in the sources; a reader may count a few less
    skipped: int = 0  # tars that were there
    tars: list[Path] = field(default_factory=list)

    @property
    def metadata(self) -> Path:
        """The snapshot of all papers' metadata."""
        return self.folder / METADATA


@dataclass(frozen=True)
class _Plan:
    """A paper to be: its number, and the pieces it takes."""

    number: int
    pieces: list[int]
    equations: int


def grow(
    sources: Sequence[str],
    folder: Path,
    equations: int,
    *,
    seed: int = 0,
    papers: int = PAPERS,
    pieces: Path | None = None,
    progress: Callable[[Growth], None] | None = None,
) -> Growth:
    """Write a corpus of so many display equations into `folder`.

    Args:
        sources: what to make it of, anything `eqkin add` reads.
        folder: gets `arXiv_src_YYMM_NNN.tar` files and the metadata snapshot.
        equations: the papers end with the one that reaches this number.
        seed: another corpus for another number.
        papers: of a tar.
        pieces: where the sources, cut up, are kept; `folder/.pieces` unless given.
        progress: called after every tar.

    Raises:
        BadInput: a source cannot be read or has no equations, or the folder holds another or a larger corpus.
        StorageFailed: the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    cut = opened(pieces or folder / ".pieces", sources)
    _claim(folder, {"version": _VERSION, "sources": list(sources), "seed": seed, "papers": papers})
    (folder / _PARTS).mkdir(exist_ok=True)
    growth = Growth(folder)
    for number, plans in enumerate(_tars(_plans(cut, seed, equations), papers)):
        name = _tar_name(number, papers)
        part = folder / _PARTS / f"{name}.jsonl"
        there = _lines(part) if (folder / name).exists() else 0
        if there > len(plans):
            raise BadInput(f"{folder}: holds a larger corpus; choose another folder")
        if there == len(plans):
            growth.skipped += 1
        else:
            content, about = _tar(plans, cut, seed, papers)
            part.unlink(missing_ok=True)
            write_file(folder / name, content)
            write_file(part, about)  # last: it says that the tar is whole
        growth.tars.append(folder / name)
        growth.papers += len(plans)
        growth.equations += sum(plan.equations for plan in plans)
        if progress:
            progress(growth)
    more = {path.name for path in folder.glob("arXiv_src_*.tar")} - {path.name for path in growth.tars}
    if more:
        raise BadInput(f"{folder}: holds a larger corpus ({len(more)} tars more); choose another folder")
    write_stream(growth.metadata, ((folder / _PARTS / f"{tar.name}.jsonl").read_bytes() for tar in growth.tars))
    return growth


def _claim(folder: Path, about: dict[str, Any]) -> None:
    """Note what the folder's corpus is made of; raises `BadInput` if that is something else."""
    path = folder / _ABOUT
    if not path.exists():
        write_file(path, orjson.dumps(about, option=orjson.OPT_INDENT_2))
    elif orjson.loads(path.read_bytes()) != about:
        raise BadInput(f"{folder}: holds a corpus made of something else ({_ABOUT} says of what); choose another")


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _plans(pieces: Pieces, seed: int, equations: int) -> Iterator[_Plan]:
    """Papers until there are enough equations; every piece of a field is used before one is used again."""
    generator = np.random.default_rng(seed)
    of_field = [np.flatnonzero(pieces.field == number) for number in range(len(pieces.fields))]
    sizes = np.array([pieces.equations[members].sum() for members in of_field], float)
    order: list[Iterator[int]] = [_rounds(members, generator) for members in of_field]
    cumulative = np.cumsum(sizes / sizes.sum())
    number = total = 0
    while total < equations:
        chosen = int(np.searchsorted(cumulative, generator.random() * cumulative[-1], "right"))
        wanted = min(generator.lognormal(np.log(_MEAN) - _SPREAD**2 / 2, _SPREAD), _LONGEST)
        taken: list[int] = []
        count = 0
        while count < wanted:
            piece = next(order[chosen])
            if piece in taken:  # a small field has no more to say
                break
            taken.append(piece)
            count += int(pieces.equations[piece])
        yield _Plan(number, taken, count)
        number += 1
        total += count


def _rounds(members: Places, generator: np.random.Generator) -> Iterator[int]:
    while True:
        yield from generator.permutation(members).tolist()


def _tars(plans: Iterator[_Plan], papers: int) -> Iterator[list[_Plan]]:
    batch: list[_Plan] = []
    for plan in plans:
        batch.append(plan)
        if len(batch) == papers:
            yield batch
            batch = []
    if batch:
        yield batch


def _month(tar: int) -> str:
    year, month = divmod(tar % _MONTHS, 12)
    return f"{(_FIRST_YEAR + year) % 100:02d}{month + 1:02d}"


def _tar_name(tar: int, papers: int) -> str:
    if (tar // _MONTHS + 1) * papers > 99_999:
        raise BadInput(f"no month has so many papers; ask for less than {99_999 * _MONTHS * _MEAN:,} equations")
    return f"arXiv_src_{_month(tar)}_{tar // _MONTHS + 1:03d}.tar"


def identifier(number: int, papers: int = PAPERS) -> str:
    """The arXiv identifier of the paper with a number; tars go through the months again and again."""
    tar, place = divmod(number, papers)
    return f"{_month(tar)}.{tar // _MONTHS * papers + place + 1:05d}"


def _tar(plans: list[_Plan], pieces: Pieces, seed: int, papers: int) -> tuple[bytes, bytes]:
    """A bulk tar, and the metadata of its papers."""
    packed, records = io.BytesIO(), []
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for plan in plans:
            generator = np.random.default_rng([seed, plan.number])
            name = identifier(plan.number, papers)
            chosen = [pieces.read(piece) for piece in plan.pieces]
            about = described(name, chosen, generator)
            cited = [identifier(int(n), papers) for n in _cited(plan.number, generator)]
            files = written(about, chosen, cited, generator, several=plan.number % _FILES == 0)
            _put(tar, f"{name[:4]}/{name}.gz", _eprint(files))
            records.append(orjson.dumps(about) + b"\n")
    return packed.getvalue(), b"".join(records)


def _cited(number: int, generator: np.random.Generator) -> list[int]:
    """Some of the papers before."""
    return sorted(set(generator.integers(0, number, generator.geometric(1 / _CITED)).tolist())) if number else []


def _put(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mtime = len(content), _EPOCH
    tar.addfile(member, io.BytesIO(content))


def _eprint(files: dict[str, str]) -> bytes:
    """One file gzipped, several in a gzipped tar: arXiv names both `.gz`."""
    if len(files) == 1:
        return gzip.compress(next(iter(files.values())).encode("utf-8", "replace"), _PACKED, mtime=_EPOCH)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, text in files.items():
            _put(tar, name, text.encode("utf-8", "replace"))
    return gzip.compress(packed.getvalue(), _PACKED, mtime=_EPOCH)
