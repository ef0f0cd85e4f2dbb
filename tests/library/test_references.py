from eqkin import Library

BIB = "@article{ising25, title = {Contributions to the Theory of Ferromagnetism}, author = {Ising, Ernst}, year = 1925}"


def test_a_paper_without_a_source_is_kept_listed_and_tried_again(tmp_path):
    (tmp_path / "my.bib").write_text(BIB)
    with Library.open(tmp_path / "library", create=True) as library:
        for _ in range(2):  # the second time it is not taken for unchanged: its source may be there now
            report = library.add(tmp_path / "my.bib")
            assert (report.papers, report.unchanged, report.failed) == (1, 0, {})
            assert len(report.without_source) == 1 and "--fetch" in report.without_source[0]
        (paper,) = library.list_papers()
        assert paper["title"] == "Contributions to the Theory of Ferromagnetism"
        assert "Ising" in str(paper["authors"])


def test_a_source_that_was_read_is_not_replaced_by_a_reference_without_one(tmp_path, monkeypatch):
    (tmp_path / "1706.03762.tex").write_text(r"\title{Attention} \[ a = b \]")
    monkeypatch.setenv("EQKIN_CACHE", str(tmp_path / "cache"))
    (tmp_path / "my.bib").write_text("@misc{v, title={Attention}, eprint={1706.03762}, archivePrefix={arXiv}}")
    with Library.open(tmp_path / "library", create=True) as library:
        cache = tmp_path / "cache" / "arxiv"
        cache.mkdir(parents=True)
        (cache / "1706.03762.source").write_bytes((tmp_path / "1706.03762.tex").read_bytes())
        assert library.add(tmp_path / "my.bib").equations.total() == 1  # fetched before
        (cache / "1706.03762.source").unlink()
        report = library.add(tmp_path / "my.bib")
        assert (report.papers, report.unchanged) == (0, 1)
        assert len(list(library.iter_equations())) == 1
