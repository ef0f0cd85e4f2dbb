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

from benchmarks.pieces import Offsets, PieceStore, open_pieces
from benchmarks.recombined import make_metadata, write_paper
from eqkin.errors import BadInput
from eqkin.storage import write_file, write_stream

METADATA_NAME = "arxiv-metadata-oai-snapshot.json"
PAPERS_PER_TAR = 100  # a tar
_ABOUT, _PARTS = "growth.json", ".metadata"  # hidden: who reads the folder finds only tars and the snapshot
_VERSION = 1
_FIRST_YEAR, _MONTHS = 2015, 120
_MEAN, _SPREAD, _LONGEST = 24, 0.9, 400  # equations of a paper; with the rest of its last piece about 31, as on arXiv
_MEAN_CITATIONS = 5  # papers a paper cites by their identifiers, on average
_MULTI_FILE_PERIOD = 3  # every so manieth paper is a tar of several files rather than one file
_GZIP_LEVEL = 5  # level of gzip
_EPOCH = 1_420_070_400  # when all files were "written": the same bytes every time


@dataclass
class GrownCorpus:
    """What was grown, so far or in the end."""

    folder: Path
    papers: int = 0
    equations: int = 0  # as they stand in the sources; a reader may count a few less
    skipped: int = 0  # tars that were there
    tars: list[Path] = field(default_factory=list)

    @property
    def metadata(self) -> Path:
        """The snapshot of all papers' metadata."""
        return self.folder / METADATA_NAME


@dataclass(frozen=True)
class _PaperPlan:
    """A paper to be: its number, and the pieces it takes."""

    number: int
    pieces: list[int]
    equations: int


def grow_corpus(
    sources: Sequence[str],
    folder: Path,
    equations: int,
    *,
    seed: int = 0,
    papers: int = PAPERS_PER_TAR,
    pieces: Path | None = None,
    progress: Callable[[GrownCorpus], None] | None = None,
) -> GrownCorpus:
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
    cut = open_pieces(pieces or folder / ".pieces", sources)
    _claim_folder(folder, {"version": _VERSION, "sources": list(sources), "seed": seed, "papers": papers})
    (folder / _PARTS).mkdir(exist_ok=True)
    growth = GrownCorpus(folder)
    for number, plans in enumerate(_group_by_tar(_plan_papers(cut, seed, equations), papers)):
        name = _get_tar_name(number, papers)
        part = folder / _PARTS / f"{name}.jsonl"
        there = _count_lines(part) if (folder / name).exists() else 0
        if there > len(plans):
            raise BadInput(f"{folder}: holds a larger corpus; choose another folder")
        if there == len(plans):
            growth.skipped += 1
        else:
            content, about = _build_tar(plans, cut, seed, papers)
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


def _claim_folder(folder: Path, about: dict[str, Any]) -> None:
    """Note what the folder's corpus is made of; raises `BadInput` if that is something else."""
    path = folder / _ABOUT
    if not path.exists():
        write_file(path, orjson.dumps(about, option=orjson.OPT_INDENT_2))
    elif orjson.loads(path.read_bytes()) != about:
        raise BadInput(f"{folder}: holds a corpus made of something else ({_ABOUT} says of what); choose another")


def _count_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _plan_papers(pieces: PieceStore, seed: int, equations: int) -> Iterator[_PaperPlan]:
    """Papers until there are enough equations; every piece of a field is used before one is used again."""
    generator = np.random.default_rng(seed)
    of_field = [np.flatnonzero(pieces.field == number) for number in range(len(pieces.fields))]
    sizes = np.array([pieces.equations[members].sum() for members in of_field], float)
    order: list[Iterator[int]] = [_iter_shuffled(members, generator) for members in of_field]
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
        yield _PaperPlan(number, taken, count)
        number += 1
        total += count


def _iter_shuffled(members: Offsets, generator: np.random.Generator) -> Iterator[int]:
    while True:
        yield from generator.permutation(members).tolist()


def _group_by_tar(plans: Iterator[_PaperPlan], papers: int) -> Iterator[list[_PaperPlan]]:
    batch: list[_PaperPlan] = []
    for plan in plans:
        batch.append(plan)
        if len(batch) == papers:
            yield batch
            batch = []
    if batch:
        yield batch


def _get_month(tar: int) -> str:
    year, month = divmod(tar % _MONTHS, 12)
    return f"{(_FIRST_YEAR + year) % 100:02d}{month + 1:02d}"


def _get_tar_name(tar: int, papers: int) -> str:
    if (tar // _MONTHS + 1) * papers > 99_999:
        raise BadInput(f"no month has so many papers; ask for less than {99_999 * _MONTHS * _MEAN:,} equations")
    return f"arXiv_src_{_get_month(tar)}_{tar // _MONTHS + 1:03d}.tar"


def get_arxiv_id(number: int, papers: int = PAPERS_PER_TAR) -> str:
    """The arXiv identifier of the paper with a number; tars go through the months again and again."""
    tar, place = divmod(number, papers)
    return f"{_get_month(tar)}.{tar // _MONTHS * papers + place + 1:05d}"


def _build_tar(plans: list[_PaperPlan], pieces: PieceStore, seed: int, papers: int) -> tuple[bytes, bytes]:
    """A bulk tar, and the metadata of its papers."""
    packed, records = io.BytesIO(), []
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for plan in plans:
            generator = np.random.default_rng([seed, plan.number])
            name = get_arxiv_id(plan.number, papers)
            chosen = [pieces.load(piece) for piece in plan.pieces]
            about = make_metadata(name, chosen, generator)
            cited = [get_arxiv_id(int(n), papers) for n in _draw_citations(plan.number, generator)]
            files = write_paper(about, chosen, cited, generator, several=plan.number % _MULTI_FILE_PERIOD == 0)
            _add_member(tar, f"{name[:4]}/{name}.gz", _pack_eprint(files))
            records.append(orjson.dumps(about) + b"\n")
    return packed.getvalue(), b"".join(records)


def _draw_citations(number: int, generator: np.random.Generator) -> list[int]:
    """Some of the papers before."""
    return (
        sorted(set(generator.integers(0, number, generator.geometric(1 / _MEAN_CITATIONS)).tolist())) if number else []
    )


def _add_member(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mtime = len(content), _EPOCH
    tar.addfile(member, io.BytesIO(content))


def _pack_eprint(files: dict[str, str]) -> bytes:
    """One file gzipped, several in a gzipped tar: arXiv names both `.gz`."""
    if len(files) == 1:
        return gzip.compress(next(iter(files.values())).encode("utf-8", "replace"), _GZIP_LEVEL, mtime=_EPOCH)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, text in files.items():
            _add_member(tar, name, text.encode("utf-8", "replace"))
    return gzip.compress(packed.getvalue(), _GZIP_LEVEL, mtime=_EPOCH)
