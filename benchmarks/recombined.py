"""A paper put together from pieces of others: its LaTeX in other letters, and what arXiv would know about it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.pieces import Piece
from benchmarks.renaming import draw_permutation
from eqkin.latex.prose import EQUATION_MARK, to_plain_text

_ABSTRACT_WORDS = 160  # of an abstract
_ARXIV_CATEGORIES = {  # of arXiv, by what some collections call their fields
    "analysis": "math.CA", "math_analysis": "math.CA", "algebra": "math.RA", "math_algebra_geom": "math.AG",
    "math_other": "math.GM", "statistics": "stat.ME", "stats_prob": "stat.ME", "probability": "math.PR",
    "numerics_opt": "math.NA", "optimization": "math.OC", "ml": "cs.LG", "machine_learning": "cs.LG",
    "econ_fin": "econ.GN", "economics": "econ.GN", "logic_cs": "cs.LO", "crypto": "cs.CR", "quantum": "quant-ph",
    "fluids_eng": "physics.flu-dyn", "hep_gr": "hep-th", "condmat_statmech": "cond-mat.stat-mech",
    "signal_control": "eess.SY", "chem": "physics.chem-ph", "chemistry": "physics.chem-ph", "astro": "astro-ph.GA",
    "astrophysics": "astro-ph.GA", "bio": "q-bio.QM", "biology": "q-bio.QM", "earth_climate": "physics.ao-ph",
}  # fmt: skip
_FIRST_NAMES = (
    "Ada Bo Chen Dara Emil Farah Gita Hugo Ines Jun Kofi Lena Mara Nils Omar Petra Quin Rosa Sven Tala".split()
)
_NAME_SYLLABLES = "ba den ka lor mi nov pet ra sen tov ul ver wi yam zel hoff".split()  # two of them make a name


def write_paper(
    about: dict[str, Any], pieces: list[Piece], cited: list[str], generator: np.random.Generator, *, several: bool
) -> dict[str, str]:
    """A paper's LaTeX by the names of its files, the main one first; with `several`, a file for each piece."""
    renamed = draw_permutation(generator)
    bodies = [f"{piece.definitions}{_rename_body(piece, renamed)}\n" for piece in pieces]
    packages = ",".join(dict.fromkeys(name for piece in pieces for name in piece.packages))
    authors = " \\and ".join(about["authors"].split(", "))
    head = (
        f"\\documentclass{{article}}\n\\usepackage{{{packages or 'amsmath'}}}\n"
        f"\\title{{{_strip_latex(about['title'])}}}\n\\author{{{authors}}}\n\\begin{{document}}\n\\maketitle\n"
        f"\\begin{{abstract}}\n{_strip_latex(about['abstract'])}\n\\end{{abstract}}\n"
    )
    entries = "".join(f"\\bibitem{{c{n}}} A. Author, arXiv:{name}.\n" for n, name in enumerate(cited))
    end = f"\\begin{{thebibliography}}{{99}}\n{entries}\\end{{thebibliography}}\n" if cited else ""
    parts = {f"part{n}.tex": body for n, body in enumerate(bodies, 1)}
    inside = "".join(f"\\input{{{name}}}\n" for name in parts) if several else "".join(bodies)
    return {"main.tex": f"{head}{inside}{end}\\end{{document}}\n"} | (parts if several else {})


def _rename_body(piece: Piece, renamed: Callable[[str], str]) -> str:
    parts = list(piece.parts)
    parts[1::2] = map(renamed, parts[1::2])
    return "".join(parts)


def _strip_latex(text: str) -> str:
    """Text without anything that means something to LaTeX."""
    return re.sub(r"[\\%#&_{}$^~]", " ", text)


def make_metadata(name: str, pieces: list[Piece], generator: np.random.Generator) -> dict[str, Any]:
    """A paper's record in the metadata snapshot; title and abstract are put together from the pieces'."""
    text = "".join(pieces[0].parts[::2])[:8_000].replace("$$", "")  # without its formulas
    words = to_plain_text(text).replace(EQUATION_MARK, " ").split()
    titles = [" ".join(piece.title.split()[:5]) for piece in (pieces[0], pieces[-1])]
    people = [_draw_person(generator) for _ in range(1 + int(generator.integers(4)))]
    date = f"20{name[:2]}-{name[2:4]}-01"
    return {
        "id": name,
        "submitter": " ".join(people[0]),
        "authors": ", ".join(f"{first} {last}" for first, last in people),
        "title": " and ".join(dict.fromkeys(title for title in titles if title)) or "Untitled",
        "comments": None,
        "journal-ref": None,
        "doi": None,
        "report-no": None,
        "categories": _get_category(pieces[0].field),
        "license": None,
        "abstract": " ".join(words[:_ABSTRACT_WORDS]),
        "versions": [{"version": "v1", "created": date}],
        "update_date": date,
        "authors_parsed": [[last, first, ""] for first, last in people],
    }


def _draw_person(generator: np.random.Generator) -> tuple[str, str]:
    first, *last = generator.integers((len(_FIRST_NAMES), len(_NAME_SYLLABLES), len(_NAME_SYLLABLES))).tolist()
    return _FIRST_NAMES[first], "".join(_NAME_SYLLABLES[n] for n in last).capitalize()


def _get_category(field: str) -> str:
    plain = re.sub(r"\W+", "_", field.lower()).strip("_")
    return _ARXIV_CATEGORIES.get(plain, field if "." in field else plain)
