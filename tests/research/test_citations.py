"""Citations between documents: by arXiv id and by title, as far as they can be resolved."""

import json

from research.citations import add_citations, find_citations, read_records
from tests.learning.corpora import corpus_of

RECORDS = [
    {"doc_id": "a", "title": "A", "path": "papers/1706.03762/main.tex", "latex": "x", "arxiv_ids_cited": []},
    {
        "doc_id": "b", "title": "On the spectra of large random graphs", "latex": r"Text. \begin{thebibliography}{9}"
        r"\bibitem{x} Nobody, \emph{Attention} arXiv:1706.03762", "arxiv_ids_cited": ["1706.03762v2"],
    },
    {"doc_id": "c", "title": "C", "latex": r"\bibitem{y} B. On the Spectra of large random graphs. 2019.\newblock"},
    {"doc_id": "d", "title": "D", "latex": "On the spectra of large random graphs, in running text, is no citation"},
]  # fmt: skip


def test_citations_are_found_by_arxiv_id_and_title():
    assert find_citations(RECORDS) == {"arXiv id": {("b", "a")}, "title": {("c", "b")}}


def test_ambiguous_and_short_titles_are_ignored():
    twin = {**RECORDS[1], "doc_id": "e", "latex": "", "arxiv_ids_cited": []}
    assert find_citations([*RECORDS, twin])["title"] == set()
    short = {"doc_id": "f", "title": "Random graphs", "latex": ""}
    assert (
        find_citations([short, {"doc_id": "g", "title": "", "latex": r"\bibitem{z} Random graphs"}])["title"] == set()
    )


def test_citations_of_records_are_added_to_a_corpus(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_text("\n".join(map(json.dumps, RECORDS)))
    assert [record["doc_id"] for record in read_records([path])] == ["a", "b", "c", "d"]
    corpus = corpus_of([[2], [2], [2]], ((0, 2),))
    corpus.papers[:] = ["record:a", "record:b", "record:c"]
    found = add_citations(corpus, [path])
    assert found.citations.tolist() == [[0, 2], [1, 0], [2, 1]]
    found.validate()
