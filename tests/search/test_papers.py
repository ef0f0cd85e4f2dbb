"""Papers related by their mathematics."""

import json

import pytest

from eqkin import Library
from eqkin.errors import BadInput, LimitReached
from eqkin.search import SearchEngine, papers
from eqkin.search.papers import read_draft
from tests.cancelling import CountingScope
from tests.limits import changed_limits

TRIVIAL = "\n".join(rf"\[ x_{{{i}}} = {i} \] \[ a = b_{{{i}}} \]" for i in range(4))
SPECIAL = (
    r"\[ i\hbar \frac{\partial \psi}{\partial t} = -\frac{\hbar^2}{2m} \nabla^2 \psi + V \psi \]"
    r"\[ \oint_C \frac{f(z)}{(z-a)^{n+1}} dz = \frac{2\pi i}{n!} f^{(n)}(a) \]"
)


@pytest.fixture(scope="module")
def small(tmp_path_factory, encoder):
    """An engine over papers with the same trivial equations, whose neighbours are copies, and one special paper."""
    place = tmp_path_factory.mktemp("papers")
    records = [
        {
            "doc_id": f"trivial-{i}",
            "title": f"Trivial {i}",
            "latex": rf"\section{{S}} {TRIVIAL} \[ q_{{{i}}} \to r^{i} \]",
        }
        for i in range(9)
    ]
    special = SPECIAL.replace(r"\psi", r"\phi").replace("z", "w")
    records.append({"doc_id": "special", "title": "Special", "latex": rf"\section{{S}} {special}"})
    (place / "papers.jsonl").write_text("\n".join(json.dumps(record) for record in records))
    with Library.open(place / "library", create=True) as library:
        library.add(place / "papers.jsonl")
        library.open_engine()
    with SearchEngine(place / "library", encoder) as engine:
        yield engine


def test_similar_papers_weigh_rare_equations_more_than_common_ones(small, tmp_path):
    draft = tmp_path / "draft.tex"
    draft.write_text(rf"\section{{Draft}} {TRIVIAL} {SPECIAL}")
    hits = small.find_similar_papers(draft, k=3)
    assert hits[0].paper.title == "Special"
    assert all(hit.score < hits[0].score for hit in hits[1:])
    assert r"\hbar" in hits[0].pairs[0][0].latex or r"\oint" in hits[0].pairs[0][0].latex


def test_similar_papers_reads_a_draft_without_adding_it(small, tmp_path):
    draft = tmp_path / "draft.tex"
    draft.write_text(rf"\section{{Draft}} Words before. {SPECIAL}")
    ours, theirs, cosine = small.find_similar_papers(draft, k=1)[0].pairs[0]
    assert ours.tree == -1 and ours.section == "Draft" and ours.mathml.startswith("<math")
    assert theirs.paper.title == "Special" and 0.5 < cosine <= 1
    assert "Draft" not in {paper.title for paper in _papers(small)}


def test_score_of_a_paper_with_the_same_equations_is_one(small, tmp_path):
    special = SPECIAL.replace(r"\psi", r"\phi").replace("z", "w")
    draft = tmp_path / "draft.tex"
    draft.write_text(rf"\section{{Draft}} {special}")
    first, *others = small.find_similar_papers(draft, k=3)
    assert first.paper.title == "Special" and first.score == pytest.approx(1, abs=0.05)
    assert all(hit.score < 0.5 for hit in others)


def _papers(engine):
    with Library.open(engine.backend.folder) as library:
        return [engine.get_paper(paper["key"]).paper for paper in library.list_papers()]


def test_similar_papers_leaves_the_paper_out(engine):
    hits = engine.find_similar_papers("atlas:quantum", k=30)
    assert "atlas:quantum" not in {hit.paper.key for hit in hits}
    assert len({hit.paper.key for hit in hits}) == len(hits) > 10
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)
    for hit in hits:
        assert all(ours.paper.key == "atlas:quantum" and theirs.paper == hit.paper for ours, theirs, _ in hit.pairs)
        assert len({theirs.id for _, theirs, _ in hit.pairs}) == len(hit.pairs)


def test_similar_papers_are_chosen_by_their_best_pairs_and_compared_by_all(engine, monkeypatch):
    complete = engine.find_similar_papers("atlas:quantum", k=4)
    monkeypatch.setattr(papers, "LARGEST_GAINS", 60)
    monkeypatch.setattr(papers, "CHOSEN_PAPERS", 8)
    assert engine.find_similar_papers("atlas:quantum", k=4, equations=1_000) == complete


def test_similar_papers_compares_as_many_equations_as_asked(engine):
    hits = engine.find_similar_papers("atlas:quantum", k=3, equations=2)
    ours = {mine.id for hit in hits for mine, _, _ in hit.pairs}
    assert 0 < len(ours) <= 2


def test_similar_papers_takes_text_for_a_key_and_never_for_a_path(engine, tmp_path):
    draft = tmp_path / "draft.tex"
    draft.write_text(rf"\section{{S}} {SPECIAL}")
    with pytest.raises(BadInput, match="no paper"):
        engine.find_similar_papers(str(draft))
    assert engine.find_similar_papers(draft, k=1)


def test_similar_papers_refuses_a_draft_without_equations_and_a_missing_one(engine, tmp_path):
    draft = tmp_path / "draft.md"
    draft.write_text("# Only words\n\nNothing.\n")
    with pytest.raises(BadInput, match="no equations"):
        engine.find_similar_papers(draft)
    with pytest.raises(BadInput, match="no such file"):
        engine.find_similar_papers(tmp_path / "none.tex")


def test_library_of_one_paper_has_no_similar_ones(tmp_path):
    (tmp_path / "a.md").write_text("# Note\n\n$$ a = b $$\n")
    with Library.open(tmp_path / "library", create=True) as library:
        library.add(tmp_path / "a.md")
        (key,) = (paper["key"] for paper in library.list_papers())
        assert library.similar_papers(key) == []


def test_search_of_related_papers_stops_when_it_is_cancelled(small):
    scope = CountingScope(1_000_000)
    scope.run(small.find_similar_papers, "record:special")
    for cancelled_at in range(1, 1_000_000 - scope.left):
        with pytest.raises(LimitReached, match="given up"):
            # with another number of hits, or it would be the answer that was kept
            CountingScope(cancelled_at).run(small.find_similar_papers, "record:special", 10 + cancelled_at)


def test_long_draft_is_represented_by_some_of_its_equations(tmp_path, encoder):
    draft = tmp_path / "draft.md"
    draft.write_text("\n\n".join(f"Before {i}.\n\n$$ x_{{{i}}} = {i} $$" for i in range(9)))
    with changed_limits(draft_equations=3):
        query = read_draft(str(draft), encoder)
    assert [equation.latex.split()[-1] for equation in query.equations] == ["0", "4", "8"]
    assert [equation.before for equation in query.equations] == ["Before 0.", "Before 4.", "Before 8."]
    assert query.vectors == pytest.approx(encoder.encode([equation.latex for equation in query.equations]), abs=1e-5)


def test_reading_of_a_draft_stops_when_it_is_cancelled(tmp_path, encoder):
    draft = tmp_path / "draft.md"
    draft.write_text("\n".join(f"$$ x = {i} $$" for i in range(1_000)))
    scope = CountingScope(1_000_000)
    scope.run(read_draft, str(draft), encoder)
    checks = 1_000_000 - scope.left
    assert checks > 5  # it is converted in batches
    for cancelled_at in range(1, checks):
        with pytest.raises(LimitReached, match="given up"):
            CountingScope(cancelled_at).run(read_draft, str(draft), encoder)
