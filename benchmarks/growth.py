r"""A synthetic corpus of any size, made of a smaller one, in the form of arXiv's bulk tars.

Each paper is one of the smaller corpus in which the letters of all formulas are renamed by one permutation: the
equations are new, and similar to the originals in size and shape. Letters change places only with letters of the same
use (indices with indices, functions with functions), so that formulas stay plausible. Names of commands and
environments, text, labels, units of length, columns of arrays, `d`, `e` and `\pi` are not changed.

The same seed gives the same bytes, and a larger corpus begins with the smaller one. Every tar is written atomically;
those that exist are skipped.
"""

from __future__ import annotations

import gzip
import io
import re
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from eqkin.errors import BadInput, EqkinError
from eqkin.latex.environments import DISPLAY_ENVIRONMENTS
from eqkin.latex.outline import parse
from eqkin.latex.prose import EQUATION_MARK, to_plain_text
from eqkin.sources.paper import Paper
from eqkin.sources.readers import open_source
from eqkin.storage.files import write_file, write_stream

METADATA_NAME = "arxiv-metadata-oai-snapshot.json"
PAPERS_PER_TAR = 100
_ABOUT, _PARTS = "growth.json", ".metadata"  # hidden: a reader of the folder finds only tars and the snapshot
_FIRST_YEAR, _MONTHS = 2015, 120
_MEAN_EQUATIONS = 24  # of a paper, at least
_MEAN_CITATIONS = 5  # of papers of the same corpus
_MULTI_FILE_PERIOD = 3  # every third paper is a tar of several files
_GZIP_LEVEL = 5
_EPOCH = 1_420_070_400  # modification time of all files, so that the bytes are the same every time
_ABSTRACT_WORDS = 160
_FIRST_NAMES = "Ada Bo Chen Dara Emil Farah Gita Hugo Ines Jun Kofi Lena Mara Nils Omar Petra Rosa Sven".split()
_NAME_SYLLABLES = "ba den ka lor mi nov pet ra sen tov ul ver wi yam zel hoff".split()  # two of them make a name
_LATIN_GROUPS = ("abcpqrs", "fgh", "ijklmn", "tuvwxyz", "ABCDEFGH", "JKLMNPQ", "RSTUVWXYZ")
_GREEK_GROUPS = (
    "alpha beta gamma delta kappa",
    "epsilon varepsilon zeta eta",
    "lambda mu nu xi",
    "theta vartheta phi varphi psi chi",
    "rho sigma tau omega",
    "Gamma Theta Lambda Phi Psi Omega",
)
_MAX_VARIABLES = 3  # letters in a row that are a product of variables; longer ones are a word
_GROUP = r"\{(?:[^{}]++|\{(?:[^{}]++|\{[^{}]*+\})*+\})*+\}"
_TOKEN = re.compile(
    rf"\\(?:begin|end)\s*+{_GROUP}(?:\s*+\[[^\]]*+\])?(?:\s*+{_GROUP})?"
    r"|\\(?:text[a-z]*+|mbox|hbox|fbox|operatorname|math(?:rm|bb|sf|tt|op|it)|label|tag|(?:eq|page|c|C|auto)?ref"
    r"|cite[a-z]*+|[hv]space|color|SI|si|num|qty|unit|ce|intertext|shortintertext|stackrel|rule|includegraphics)"
    rf"(?![A-Za-z])\*?\s*+(?:\[[^\]]*+\]\s*+)?{_GROUP}"
    r"|\\(?:rm|it|sf|tt|mathrm|mathbb|operatorname)(?![A-Za-z])\s*+[A-Za-z]*+"
    r"|\\[A-Za-z@]++|\\."
    r"|[0-9]\s*+(?:pt|em|ex|mm|cm|in|mu|bp|pc)(?![A-Za-z])"
    r"|[A-Za-z]++",
    re.DOTALL,
)
_NAMES = "|".join(sorted(map(re.escape, DISPLAY_ENVIRONMENTS)))
_MATH = re.compile(  # how it begins, what is in it, how it ends
    rf"(\\begin\s*+\{{(?P<name>(?:{_NAMES})\*?)\}})(.*?)(\\end\s*+\{{(?P=name)\}})"
    r"|(?<!\\)(\\\[)(.*?)(\\\])|(\$\$)(.+?)(\$\$)|(?<![\\$])(\$)((?:[^$\\\n]++|\\.|\n(?![ \t]*+\n))++)(\$)",
    re.DOTALL,
)


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
    """A paper to write: its number, and what it is made of."""

    number: int
    paper: Paper
    title: str
    equations: int


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
    known = load_papers(sources)
    settings = {"version": 1, "sources": list(sources), "seed": seed, "papers": papers}
    if not (folder / _ABOUT).exists():
        write_file(folder / _ABOUT, orjson.dumps(settings, option=orjson.OPT_INDENT_2))
    elif orjson.loads((folder / _ABOUT).read_bytes()) != settings:
        raise BadInput(f"{folder}: holds a corpus made of something else (see {_ABOUT}); choose another folder")
    (folder / _PARTS).mkdir(exist_ok=True)
    growth = GrownCorpus(folder)
    planned, number = _plan_papers(known, seed, equations), -1
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


def load_papers(sources: Sequence[str]) -> list[_PaperPlan]:
    """Read the papers of some sources that have equations; raises `BadInput` if there are none."""
    found = []
    for item in chain.from_iterable([open_source(source) for source in sources]):
        with suppress(EqkinError):  # `eqkin add` would report it
            paper = item.load()
            document = parse(paper.text, paper.styles, [])
            if document.equations:
                found.append(_PaperPlan(0, paper, paper.title or document.about.title, len(document.equations)))
    if not found:
        raise BadInput(f"{', '.join(sources)}: no equations to grow a corpus from")
    return found


def _plan_papers(known: list[_PaperPlan], seed: int, equations: int) -> Iterator[_PaperPlan]:
    """Yield papers until there are enough equations; all are used before one is used again."""
    generator, number, total = np.random.default_rng(seed), 0, 0
    while True:
        for chosen in generator.permutation(len(known)).tolist():
            if total >= equations:
                return
            yield replace(known[chosen], number=number)
            number, total = number + 1, total + known[chosen].equations


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
            about = make_metadata(name, plan, generator)
            count = generator.geometric(1 / _MEAN_CITATIONS) if plan.number else 0
            cited = [
                get_arxiv_id(n, papers) for n in sorted({*generator.integers(0, plan.number or 1, count).tolist()})
            ]
            text = write_paper(plan.paper, about, cited, draw_permutation(generator))
            several = plan.number % _MULTI_FILE_PERIOD == 0
            files = {"main.tex": "\\input{text.tex}\n", "text.tex": text} if several else {"main.tex": text}
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


@dataclass(frozen=True)
class LetterPermutation:
    """A permutation of letters, applied to formulas."""

    latin: dict[int, str]  # for `str.translate`
    greek: dict[str, str]  # commands, with their backslashes

    def __call__(self, formula: str) -> str:
        """Rename the letters of a formula."""

        def rename(match: re.Match[str]) -> str:
            token: str = match[0]
            if token[0] == "\\":
                return self.greek.get(token, token)
            return token.translate(self.latin) if len(token) <= _MAX_VARIABLES and token.isalpha() else token

        return _TOKEN.sub(rename, formula)


def draw_permutation(generator: np.random.Generator) -> LetterPermutation:
    """Draw a random permutation, uniformly."""
    latin: dict[int, str] = {}
    for letters in _LATIN_GROUPS:
        order = generator.permutation(len(letters))
        latin |= {ord(letter): letters[place] for letter, place in zip(letters, order, strict=True)}
    greek: dict[str, str] = {}
    for names in (group.split() for group in _GREEK_GROUPS):
        order = generator.permutation(len(names))
        greek |= {rf"\{name}": rf"\{names[place]}" for name, place in zip(names, order, strict=True)}
    return LetterPermutation(latin, greek)


def write_paper(paper: Paper, about: dict[str, Any], cited: list[str], rename: LetterPermutation) -> str:
    """Return the LaTeX of a paper with other letters in its formulas, and with citations."""

    def rename_math(found: re.Match[str]) -> str:
        begin, inside, end = (part for n, part in enumerate(found.groups()) if part is not None and n != 1)
        return f"{begin}{rename(inside)}{end}"

    text, begin, end = _MATH.sub(rename_math, paper.text), r"\begin{document}", r"\end{document}"
    if begin not in text:
        title = re.sub(r"[\\%#&_{}$^~]", " ", about["title"])  # what has a meaning in LaTeX
        text = f"\\documentclass{{article}}\n\\title{{{title}}}\n{begin}\n{text}\n{end}\n"
    entries = "".join(f"\\bibitem{{c{n}}} A. Author, arXiv:{name}.\n" for n, name in enumerate(cited))
    before, _, after = text.rpartition(end) if end in text else (text, "", "")
    more = f"\n\\begin{{thebibliography}}{{99}}\n{entries}\\end{{thebibliography}}\n" if cited else ""
    return "\n".join(paper.styles) + before + more + end + after


def make_metadata(name: str, plan: _PaperPlan, generator: np.random.Generator) -> dict[str, Any]:
    """Return a paper's record in the metadata snapshot; title and abstract are taken from its text."""
    text = _MATH.sub(" ", plan.paper.text.partition(r"\begin{document}")[2] or plan.paper.text)[:8_000]
    words = to_plain_text(text).replace(EQUATION_MARK, " ").split()
    people = []
    for _ in range(1 + int(generator.integers(4))):
        first, *last = generator.integers((len(_FIRST_NAMES), len(_NAME_SYLLABLES), len(_NAME_SYLLABLES))).tolist()
        people.append((_FIRST_NAMES[first], "".join(_NAME_SYLLABLES[n] for n in last).capitalize()))
    date = f"20{name[:2]}-{name[2:4]}-01"
    return {
        "id": name,
        "submitter": " ".join(people[0]),
        "authors": ", ".join(f"{first} {last}" for first, last in people),
        "title": " ".join(plan.title.split()) or "Untitled",
        "categories": re.sub(r"[^\w.]+", "-", plan.paper.fields[0] if plan.paper.fields else "other"),
        "abstract": " ".join(words[:_ABSTRACT_WORDS]),
        "versions": [{"version": "v1", "created": date}],
        "update_date": date,
        "authors_parsed": [[last, first, ""] for first, last in people],
    }
