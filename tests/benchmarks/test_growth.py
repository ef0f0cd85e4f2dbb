"""A larger corpus from a smaller one, in the shape of arXiv's bulk data."""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from benchmarks import growth
from benchmarks.growth import grow_corpus
from eqkin.api import Library
from eqkin.errors import BadInput
from eqkin.latex.outline import parse
from eqkin.sources.metadata import MetadataSnapshot
from eqkin.sources.readers import open_source


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> growth.GrownCorpus:
    return grow_corpus(["atlas:"], tmp_path_factory.mktemp("grown"), 600, papers=6)


def contents(folder: Path) -> dict[str, str]:
    return {path.name: sha256(path.read_bytes()).hexdigest() for path in folder.iterdir() if path.is_file()}


def test_grown_papers_are_read_with_their_metadata(grown: growth.GrownCorpus, tmp_path: Path) -> None:
    with Library.open(tmp_path / "library", create=True) as library:
        report = library.add(
            grown.folder,
            metadata=MetadataSnapshot(grown.folder / growth.METADATA_NAME, folder=tmp_path),
            formulas="displays",
        )
        papers = library.list_papers()
        sizes = np.concatenate([forest.sizes for _, forest, _ in library.iter_trees(library.list_tree_keys())])
        citations = {row[0] for row in library.connection.execute("SELECT cited FROM citations")}
    assert not report.failed
    assert report.papers == grown.papers > 6
    assert 600 <= grown.equations <= 1_000
    assert sum(report.equations.values()) == grown.equations
    assert report.equations["converted"] > 0.97 * grown.equations
    assert {paper["key"] for paper in papers} == {f"arxiv:{growth.get_arxiv_id(n, 6)}" for n in range(grown.papers)}
    assert all(paper["title"] and paper["authors"] and paper["fields"] and paper["year"] >= 2015 for paper in papers)
    assert 40 < sizes.mean() < 80  # the atlas has 58
    assert citations
    assert citations <= {paper["key"].removeprefix("arxiv:") for paper in papers}


def test_grown_equations_are_new(grown: growth.GrownCorpus) -> None:
    def written(source: str) -> Iterator[str]:
        for item in open_source(source):
            paper = item.load()
            yield from (equation.body for equation in parse(paper.text, paper.styles).equations)

    old, new = set(written("atlas:")), list(written(str(grown.folder)))
    assert len(set(new)) > 0.9 * len(new)
    assert sum(body in old for body in new) < 0.15 * len(new)


def test_same_seed_gives_same_bytes_and_existing_files_stay(grown: growth.GrownCorpus, tmp_path: Path) -> None:
    again = grow_corpus(["atlas:"], tmp_path, 600, papers=6)
    assert contents(tmp_path) == contents(grown.folder)
    again.tars[1].unlink()  # as if it had been stopped
    whole = again.tars[0].stat().st_mtime_ns
    resumed = grow_corpus(["atlas:"], tmp_path, 600, papers=6)
    assert resumed.skipped == len(resumed.tars) - 1
    assert again.tars[0].stat().st_mtime_ns == whole
    assert contents(tmp_path) == contents(grown.folder)


def test_larger_corpus_begins_with_the_smaller_one(grown: growth.GrownCorpus, tmp_path: Path) -> None:
    smaller = grow_corpus(["atlas:"], tmp_path, 300, papers=6)
    larger = grow_corpus(["atlas:"], tmp_path, 600, papers=6)
    assert len(smaller.tars) < len(larger.tars)
    assert larger.skipped >= len(smaller.tars) - 1
    assert contents(tmp_path) == contents(grown.folder)
    with pytest.raises(BadInput, match="larger"):
        grow_corpus(["atlas:"], tmp_path, 300, papers=6)
    with pytest.raises(BadInput, match="something else"):
        grow_corpus(["atlas:"], tmp_path, 600, papers=6, seed=1)


def test_grown_papers_keep_their_macros(tmp_path: Path) -> None:
    for name, meaning in (("a", r"\alpha^{2}"), ("b", r"\frac{1}{2}")):
        text = rf"\newcommand{{\inner}}{{{meaning}}}\newcommand{{\whole}}{{\inner}}" + r"\[ \whole = 1 \]" * 5
        (tmp_path / f"{name}.tex").write_text(rf"\documentclass{{article}}\begin{{document}}{text}\end{{document}}")
    grown = grow_corpus([str(tmp_path / "a.tex"), str(tmp_path / "b.tex")], tmp_path / "grown", 40)
    with Library.open(tmp_path / "library", create=True) as library:
        report = library.add(grown.folder)
        marks = [mathml for row in library.iter_equations() if (mathml := row["mathml"])]
    assert report.equations == {"converted": grown.equations}
    squares, halves = (sum(mark in mathml for mathml in marks) for mark in ("<msup>", "<mfrac>"))
    assert squares + halves == grown.equations
    assert squares > 0 < halves


def test_grow_rejects_sources_without_equations(tmp_path: Path) -> None:
    (tmp_path / "words.tex").write_text("nothing but words")
    with pytest.raises(BadInput, match="no equations"):
        grow_corpus([str(tmp_path / "words.tex")], tmp_path / "grown", 10)
