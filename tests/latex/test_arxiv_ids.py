"""arXiv identifiers in bibliographies."""

import pytest

from eqkin.latex.outline import parse
from eqkin.latex.titles import find_cited_ids, parse_arxiv_id, parse_file_name


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("2005.01234", "2005.01234"),
        ("arXiv:2005.01234v2", "2005.01234"),
        ("0704.0001", "0704.0001"),
        ("https://arxiv.org/abs/1706.03762v5", "1706.03762"),
        ("http://www.arxiv.org/pdf/1706.03762.pdf", "1706.03762"),
        ("hep-th/9901001", "hep-th/9901001"),
        ("hep-th/9901001v3", "hep-th/9901001"),
        ("math.AG/0309136", "math/0309136"),
        ("2013.01234", None),
        ("1234.567", None),
        ("hep-th/991", None),
        ("unknown/9901001", None),
        ("", None),
    ],
)
def test_parse_arxiv_id_gives_one_form(written, plain):
    found = parse_arxiv_id(written)
    assert (found and found.base) == plain


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("1706/1706.03762.gz", "1706.03762"),
        ("hep-th9901001.gz", "hep-th/9901001"),
        ("0704.0001v2.tar.gz", "0704.0001"),
        ("math.AG0309136v2.gz", "math/0309136"),
        ("notes2021.gz", None),
        ("report2003123.zip", None),
        ("1706.03762v1v2.gz", None),
    ],
)
def test_identifiers_are_found_in_file_names(name, base):
    found = parse_file_name(name)
    assert (found and found.base) == base


@pytest.mark.parametrize(
    ("item", "found"),
    [
        (r"\bibitem{a} A. Author, arXiv:2005.01234.", ["2005.01234"]),
        (r"\bibitem{a} arXiv:2005.01234v2 [hep-th]", ["2005.01234"]),
        (r"\bibitem{a} \href{http://arxiv.org/abs/1207.7214}{1207.7214}", ["1207.7214"]),
        (r"\bibitem{a} {\tt [arXiv:0912.1234 [hep-ph]]}", ["0912.1234"]),
        (r"\bibitem{a} \eprint{hep-th/9901001}, math.AG/0309136v1", ["hep-th/9901001", "math/0309136"]),
        (r"\bibitem{a} Phys. Rev. D 1234.56789, p. 1501.1234", []),
        (r"\bibitem{a} CoRR abs/1412.6980, 2014", ["1412.6980"]),
        (r"\bibitem{a} arXiv:~1412.6980; arXiv:1412.6980", ["1412.6980"]),
        (r"\bibitem{a} xhep-th/9901001, hep-th/99010012", []),
    ],
)
def test_cited_ids_are_found_in_bibliography_items(item, found):
    text = rf"Text 2101.00001 arXiv:1.5 \begin{{thebibliography}}{{9}}{item}\end{{thebibliography}}"
    assert parse(text).cites == found
    assert parse("Body.", bibliographies=[item]).cites == found


def test_cited_ids_are_found_in_bibliographies_only():
    assert parse("We use arXiv:2005.01234 and hep-th/9901001 and 0.1234 and 1703.1234.").cites == []
    assert parse("\\begin{thebibliography}{9}%\\bibitem{a} arXiv:1706.03762\n\\end{thebibliography}").cites == []
    bib = '@article{a, eprint = {1706.03762}, archivePrefix="arXiv"}\n'
    bib += '@misc{b, eprint="hep-th/9711200"}\n@misc{c, eprint=1412.6980}'
    assert find_cited_ids("", [bib]) == ["1412.6980", "1706.03762", "hep-th/9711200"]
