"""A synthetic corpus of any size, made of a smaller one, in the form of arXiv's bulk tars.

Each paper combines pieces of several papers of one field and renames the letters of its formulas by one permutation:
the equations are new, and similar to the originals in size and shape. The same seed gives the same bytes, and a larger
corpus begins with the smaller one. Every tar is written atomically; those that exist are skipped.
"""

from __future__ import annotations

import gzip
import io
import re
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from benchmarks.pieces import Piece, draw_permutation, load_pieces
from eqkin.errors import BadInput
from eqkin.latex.prose import EQUATION_MARK, to_plain_text
from eqkin.storage import write_file, write_stream

METADATA_NAME = "arxiv-metadata-oai-snapshot.json"
PAPERS_PER_TAR = 100
_ABOUT, _PARTS = "growth.json", ".metadata"  # hidden: a reader of the folder finds only tars and the snapshot
_FIRST_YEAR, _MONTHS = 2015, 120
_MEAN_EQUATIONS, _SPREAD, _MAX_EQUATIONS = 24, 0.9, 400  # lognormal; about 31 with the rest of the last piece
_MEAN_CITATIONS = 5  # of papers of the same corpus
_MULTI_FILE_PERIOD = 3  # every third paper is a tar of several files
_GZIP_LEVEL = 5
_EPOCH = 1_420_070_400  # modification time of all files, so that the bytes are the same every time
_ABSTRACT_WORDS = 160
_FIRST_NAMES = "Ada Bo Chen Dara Emil Farah Gita Hugo Ines Jun Kofi Lena Mara Nils Omar Petra Rosa Sven".split()
_NAME_SYLLABLES = "ba den ka lor mi nov pet ra sen tov ul ver wi yam zel hoff".split()  # two of them make a name


@dataclass
class GrownCorpus:
    """The corpus that was made so far."""

    folder: Path
    papers: int = 0
    equations: int = 0  # in the sources; a reader may find slightly fewer
    skipped: int = 0  # tars that existed
    tars: list[Path] = field(default_factory=list)


@dataclass(frozen=True)
class _PaperPlan:
    """A paper to write: its number and its pieces."""

    number: int
    pieces: list[Piece]

    @property
    def equations(self) -> int:
        """How many it has."""
        return sum(piece.equations for piece in self.pieces)


def grow_corpus(
    sources: Sequence[str],
    folder: Path,
    equations: int,
    *,
    seed: int = 0,
    papers: int = PAPERS_PER_TAR,
    progress: Callable[[GrownCorpus], None] | None = None,
) -> GrownCorpus:
    """Write `arXiv_src_YYMM_NNN.tar` files and their metadata into a folder, with at least `equations` equations.

    The corpus is made of `sources`, anything `eqkin add` reads, with some papers per tar; `progress` is called after
    every tar. Raises `BadInput` if a source cannot be read or has no equations, or if the folder holds another or a
    larger corpus.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pieces = load_pieces(sources)
    settings = {"version": 1, "sources": list(sources), "seed": seed, "papers": papers}
    if not (folder / _ABOUT).exists():
        write_file(folder / _ABOUT, orjson.dumps(settings, option=orjson.OPT_INDENT_2))
    elif orjson.loads((folder / _ABOUT).read_bytes()) != settings:
        raise BadInput(f"{folder}: holds a corpus made of something else (see {_ABOUT}); choose another folder")
    (folder / _PARTS).mkdir(exist_ok=True)
    growth = GrownCorpus(folder)
    planned, number = _plan_papers(pieces, seed, equations), -1
    while plans := list(islice(planned, papers)):
        number += 1
        name = _get_tar_name(number, papers)
        part = folder / _PARTS / f"{name}.jsonl"
        there = part.read_bytes().count(b"\n") if part.exists() and (folder / name).exists() else 0
        if there > len(plans):
            raise BadInput(f"{folder}: holds a larger corpus; choose another folder")
        if there == len(plans):
            growth.skipped += 1
        else:
            content, about = _build_tar(plans, seed, papers)
            part.unlink(missing_ok=True)
            write_file(folder / name, content)
            write_file(part, about)  # last: it shows that the tar is complete
        growth.tars.append(folder / name)
        growth.papers += len(plans)
        growth.equations += sum(plan.equations for plan in plans)
        if progress:
            progress(growth)
    more = {path.name for path in folder.glob("arXiv_src_*.tar")} - {path.name for path in growth.tars}
    if more:
        raise BadInput(f"{folder}: holds a larger corpus ({len(more)} tars more); choose another folder")
    write_stream(folder / METADATA_NAME, ((folder / _PARTS / f"{tar.name}.jsonl").read_bytes() for tar in growth.tars))
    return growth


def _plan_papers(pieces: list[Piece], seed: int, equations: int) -> Iterator[_PaperPlan]:
    """Yield papers until there are enough equations; all pieces of a field are used before one is used again."""
    generator = np.random.default_rng(seed)
    fields: dict[str, list[Piece]] = {}
    for piece in pieces:
        fields.setdefault(piece.field, []).append(piece)

    def iter_shuffled(members: list[Piece]) -> Iterator[Piece]:
        while True:
            yield from (members[number] for number in generator.permutation(len(members)))

    shuffled = [iter_shuffled(members) for members in fields.values()]
    sizes = np.cumsum([sum(piece.equations for piece in members) for members in fields.values()], dtype=float)
    number = total = 0
    while total < equations:
        field = shuffled[int(np.searchsorted(sizes, generator.random() * sizes[-1], "right"))]
        wanted = min(generator.lognormal(np.log(_MEAN_EQUATIONS) - _SPREAD**2 / 2, _SPREAD), _MAX_EQUATIONS)
        plan = _PaperPlan(number, [])
        while plan.equations < wanted:
            piece = next(field)
            if piece in plan.pieces:  # a small field has no more
                break
            plan.pieces.append(piece)
        yield plan
        number += 1
        total += plan.equations


def _get_month(tar: int) -> str:
    year, month = divmod(tar % _MONTHS, 12)
    return f"{(_FIRST_YEAR + year) % 100:02d}{month + 1:02d}"


def _get_tar_name(tar: int, papers: int) -> str:
    if (tar // _MONTHS + 1) * papers > 99_999:
        raise BadInput(f"too many papers; ask for less than {99_999 * _MONTHS * _MEAN_EQUATIONS:,} equations")
    return f"arXiv_src_{_get_month(tar)}_{tar // _MONTHS + 1:03d}.tar"


def get_arxiv_id(number: int, papers: int = PAPERS_PER_TAR) -> str:
    """Return the arXiv identifier of the paper with a number; tars cycle through the months."""
    tar, place = divmod(number, papers)
    return f"{_get_month(tar)}.{tar // _MONTHS * papers + place + 1:05d}"


def _build_tar(plans: list[_PaperPlan], seed: int, papers: int) -> tuple[bytes, bytes]:
    """Return a bulk tar and the metadata of its papers as JSON lines."""
    packed, records = io.BytesIO(), []
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for plan in plans:
            generator = np.random.default_rng([seed, plan.number])
            name = get_arxiv_id(plan.number, papers)
            about = make_metadata(name, plan.pieces, generator)
            count = generator.geometric(1 / _MEAN_CITATIONS) if plan.number else 0
            cited = [
                get_arxiv_id(n, papers) for n in sorted({*generator.integers(0, plan.number or 1, count).tolist()})
            ]
            files = write_paper(about, plan.pieces, cited, generator, several=plan.number % _MULTI_FILE_PERIOD == 0)
            _add_member(tar, f"{name[:4]}/{name}.gz", _pack_eprint(files))
            records.append(orjson.dumps(about) + b"\n")
    return packed.getvalue(), b"".join(records)


def _add_member(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mtime = len(content), _EPOCH
    tar.addfile(member, io.BytesIO(content))


def _pack_eprint(files: dict[str, str]) -> bytes:
    """Compress one file, or a tar of several: arXiv names both `.gz`."""
    if len(files) == 1:
        return gzip.compress(next(iter(files.values())).encode("utf-8", "replace"), _GZIP_LEVEL, mtime=_EPOCH)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, text in files.items():
            _add_member(tar, name, text.encode("utf-8", "replace"))
    return gzip.compress(packed.getvalue(), _GZIP_LEVEL, mtime=_EPOCH)


def write_paper(
    about: dict[str, Any], pieces: list[Piece], cited: list[str], generator: np.random.Generator, *, several: bool
) -> dict[str, str]:
    """Return a paper's LaTeX files by name, the main one first; with `several`, one file per piece."""
    rename, bodies = draw_permutation(generator), []
    for piece in pieces:
        parts = [rename(part) if number % 2 else part for number, part in enumerate(piece.parts)]
        bodies.append(f"{piece.definitions}{''.join(parts)}\n")
    packages = ",".join(dict.fromkeys(name for piece in pieces for name in piece.packages))
    authors = " \\and ".join(about["authors"].split(", "))
    head = (
        f"\\documentclass{{article}}\n\\usepackage{{{packages or 'amsmath'}}}\n"
        f"\\title{{{_strip_latex(about['title'])}}}\n\\author{{{authors}}}\n\\begin{{document}}\n\\maketitle\n"
        f"\\begin{{abstract}}\n{_strip_latex(about['abstract'])}\n\\end{{abstract}}\n"
    )
    entries = "".join(f"\\bibitem{{c{n}}} A. Author, arXiv:{name}.\n" for n, name in enumerate(cited))
    end = f"\\begin{{thebibliography}}{{99}}\n{entries}\\end{{thebibliography}}\n" if cited else ""
    files = {f"part{n}.tex": body for n, body in enumerate(bodies, 1)}
    inside = "".join(f"\\input{{{name}}}\n" for name in files) if several else "".join(bodies)
    return {"main.tex": f"{head}{inside}{end}\\end{{document}}\n"} | (files if several else {})


def _strip_latex(text: str) -> str:
    """Replace everything that has a meaning in LaTeX."""
    return re.sub(r"[\\%#&_{}$^~]", " ", text)


def make_metadata(name: str, pieces: list[Piece], generator: np.random.Generator) -> dict[str, Any]:
    """Return a paper's record in the metadata snapshot; title and abstract are taken from its pieces."""
    text = "".join(pieces[0].parts[::2])[:8_000].replace("$$", "")  # without its formulas
    words = to_plain_text(text).replace(EQUATION_MARK, " ").split()
    titles = [" ".join(piece.title.split()[:5]) for piece in (pieces[0], pieces[-1])]
    people = []
    for _ in range(1 + int(generator.integers(4))):
        first, *last = generator.integers((len(_FIRST_NAMES), len(_NAME_SYLLABLES), len(_NAME_SYLLABLES))).tolist()
        people.append((_FIRST_NAMES[first], "".join(_NAME_SYLLABLES[n] for n in last).capitalize()))
    date = f"20{name[:2]}-{name[2:4]}-01"
    return {
        "id": name,
        "submitter": " ".join(people[0]),
        "authors": ", ".join(f"{first} {last}" for first, last in people),
        "title": " and ".join(dict.fromkeys(title for title in titles if title)) or "Untitled",
        "categories": re.sub(r"[^\w.]+", "-", pieces[0].field),
        "abstract": " ".join(words[:_ABSTRACT_WORDS]),
        "versions": [{"version": "v1", "created": date}],
        "update_date": date,
        "authors_parsed": [[last, first, ""] for first, last in people],
    }
