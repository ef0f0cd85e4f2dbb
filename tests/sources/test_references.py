import sqlite3

import orjson
import pypdf
import pytest

from eqkin.errors import BadInput
from eqkin.sources.arxiv import ArxivClient
from eqkin.sources.readers import open_source
from eqkin.sources.references import read_pdf_reference
from tests.sources.builders import TEX, gz, tar_of
from tests.sources.test_arxiv import server  # noqa: F401

BIB = r"""
@article{ising25, title = {Contributions to the {Theory} of Ferromagnetism}, author = {Ising, Ernst}, year = 1925,
  doi = {10.1007/BF02980577}}
@misc{vaswani, title={Attention Is All You Need}, author={Vaswani, Ashish and Shazeer, Noam}, year={2017},
  eprint={1706.03762}, archivePrefix={arXiv}}
@article{mueller, title={On $L^2$ bounds of M{\"u}ller}, author={M{\"u}ller, Karl}, url={https://arxiv.org/abs/math/0309136v2}}
@broken{
"""
RIS = """TY  - JOUR
TI  - Attention Is All You Need
AU  - Vaswani, Ashish
PY  - 2017/06/12
UR  - https://arxiv.org/abs/1706.03762
ER  -
"""
ENTRY = """<entry><id>http://arxiv.org/abs/{id}v1</id><published>2017-06-12T17:57:34Z</published><title>{title}</title>
<summary>About.</summary><author><name>{author}</name></author><category term="cs.LG"/></entry>"""


def make_feed(*entries):
    return ('<feed xmlns="http://www.w3.org/2005/Atom">' + "".join(entries) + "</feed>").encode()


def make_pdf(path, lines, **about):
    """Write a PDF of one page whose text is `lines`."""
    content = b"BT /F1 12 Tf 50 700 Td " + b" ".join(b"(%s) Tj 0 -20 Td" % line.encode() for line in lines) + b" ET"
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents 4 0 R "
        b"/Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    raw, offsets = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        offsets.append(len(raw))
        raw += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"xref\n0 6\n0000000000 65535 f \n" + b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    path.write_bytes(raw + table + b"trailer << /Root 1 0 R /Size 6 >>\nstartxref\n%d\n%%%%EOF\n" % len(raw))
    if about:
        writer = pypdf.PdfWriter(clone_from=path)
        writer.add_metadata({f"/{name}": value for name, value in about.items()})
        writer.write(path)


def make_zotero(path):
    database = sqlite3.connect(path)
    database.executescript(
        """
        CREATE TABLE itemTypes (itemTypeID, typeName); INSERT INTO itemTypes VALUES (1, 'preprint'), (2, 'attachment');
        CREATE TABLE items (itemID, itemTypeID, key);
        INSERT INTO items VALUES (1, 1, 'ABCD'), (2, 2, 'EFGH'), (3, 1, 'GONE');
        CREATE TABLE deletedItems (itemID); INSERT INTO deletedItems VALUES (3);
        CREATE TABLE fields (fieldID, fieldName);
        INSERT INTO fields VALUES (1, 'title'), (2, 'archiveID'), (3, 'date'), (4, 'extra');
        CREATE TABLE itemDataValues (valueID, value);
        INSERT INTO itemDataValues VALUES (1, 'Attention Is All You Need'), (2, 'arXiv:1706.03762'), (3, '2017-06-12'),
          (4, 'Citation Key: vaswani2017');
        CREATE TABLE itemData (itemID, fieldID, valueID); INSERT INTO itemData VALUES (1,1,1), (1,2,2),
          (1,3,3), (1,4,4);
        CREATE TABLE creators (creatorID, firstName, lastName); INSERT INTO creators VALUES (1, 'Ashish', 'Vaswani');
        CREATE TABLE itemCreators (itemID, creatorID, orderIndex); INSERT INTO itemCreators VALUES (1, 1, 0);
        """
    )
    database.commit()
    database.close()


@pytest.fixture
def client(server, tmp_path):  # noqa: F811
    folder = tmp_path / "cache"
    return ArxivClient(f"{server.address}/api", f"{server.address}/src", folder, delay=0, sleep=lambda seconds: None)


def load_all(path, client, *, fetch=False):
    return [item.load() for item in open_source(str(path), arxiv=client, fetch=fetch)]


def test_bibtex_entries_become_papers_with_their_metadata_and_nothing_is_fetched_unasked(tmp_path, client, server):  # noqa: F811
    (tmp_path / "my.bib").write_text(BIB)
    ising, vaswani, mueller = load_all(tmp_path / "my.bib", client)
    assert (ising.key, ising.title, ising.authors, ising.year) == (
        "doi:10.1007/bf02980577",
        "Contributions to the Theory of Ferromagnetism",
        ["Ernst Ising"],
        1925,
    )
    assert vaswani.key == "arxiv:1706.03762" and vaswani.authors == ["Ashish Vaswani", "Noam Shazeer"]
    assert vaswani.cite_key == "vaswani" and "--fetch" in vaswani.missing_source
    assert mueller.key == "arxiv:math/0309136" and mueller.authors == ["Karl Müller"]
    assert server.requests == []


def test_fetching_reads_the_source_and_a_paper_that_arxiv_lacks_says_why(tmp_path, client):
    (tmp_path / "my.bib").write_text(BIB)
    ising, vaswani, mueller = load_all(tmp_path / "my.bib", client, fetch=True)
    assert vaswani.text and not vaswani.missing_source and "cs.LG" in vaswani.fields
    assert "no paper with this title" in ising.missing_source
    assert "no such paper" in mueller.missing_source and mueller.title


@pytest.mark.parametrize(("author", "is_found"), [("A. Vaswani", True), ("J. Smith", False)])
def test_a_title_and_an_author_lead_to_the_source(tmp_path, client, author, is_found):
    (tmp_path / "my.bib").write_text(f"@article{{a, title={{Attention is all you need.}}, author={{{author}}}}}")
    (paper,) = load_all(tmp_path / "my.bib", client, fetch=True)
    assert (bool(paper.text), bool(paper.missing_source)) == (is_found, not is_found)


def test_metadata_of_many_papers_is_fetched_at_once(tmp_path, client, server):  # noqa: F811
    ids = [f"1706.0{n}" for n in range(1000, 1004)]
    feed = make_feed(*(ENTRY.format(id=one, title=f"Paper {one}", author="A. Author") for one in ids))
    server.set("/api", (200, {}, feed))
    for one in ids:
        server.set(f"/src/{one}", (200, {}, gz(tar_of({"main.tex": TEX}))))
    (tmp_path / "my.bib").write_text("\n".join(f"@misc{{k{one}, eprint={{{one}}}}}" for one in ids))
    papers = load_all(tmp_path / "my.bib", client, fetch=True)
    assert [paper.title for paper in papers] == [f"Paper {one}" for one in ids]
    assert sum(path.startswith("/api") for path in server.requests) == 1


def test_ris_csl_and_zotero_give_the_same_paper(tmp_path, client):
    (tmp_path / "a.ris").write_text(RIS)
    person = {"family": "Vaswani", "given": "Ashish"}
    entry = {"id": "x", "type": "article", "title": "Attention Is All You Need", "author": [person]}
    entry |= {"issued": {"date-parts": [[2017]]}, "URL": "https://arxiv.org/abs/1706.03762"}
    (tmp_path / "b.json").write_bytes(orjson.dumps([entry, {"title": 3}, 7]))
    make_zotero(tmp_path / "c.sqlite")
    for name in ("a.ris", "b.json", "zotero:" + str(tmp_path / "c.sqlite")):
        (paper,) = load_all(tmp_path / name if ":" not in name else name, client)
        assert (paper.key, paper.title) == ("arxiv:1706.03762", "Attention Is All You Need"), name
        assert (paper.authors, paper.year) == (["Ashish Vaswani"], 2017), name


def test_a_pdf_is_known_by_its_stamp_its_name_or_its_metadata(tmp_path, client):
    make_pdf(tmp_path / "stamped.pdf", ["arXiv:1706.03762v5  [cs.CL]  6 Dec 2017", "We cite arXiv:2001.00001."])
    make_pdf(tmp_path / "1706.03762v2.pdf", ["A page"])
    make_pdf(tmp_path / "about.pdf", ["A page"], Subject="https://arxiv.org/abs/1706.03762", Title="Attention")
    for name in ("stamped.pdf", "1706.03762v2.pdf", "about.pdf"):
        (paper,) = load_all(tmp_path / name, client)
        assert paper.key == "arxiv:1706.03762", name
    make_pdf(tmp_path / "cites.pdf", ["We cite arXiv:2001.00001.", "doi:10.1000/xyz-1."], Title="Some Long Title")
    (paper,) = load_all(tmp_path / "cites.pdf", client)
    assert paper.key.startswith("file:") and (paper.title, paper.doi) == ("Some Long Title", "10.1000/xyz-1")


def test_a_folder_keeps_pdfs_and_leaves_bibliographies_and_pdfs_of_sources(tmp_path, client):
    make_pdf(tmp_path / "lonely.pdf", ["A page"])
    make_pdf(tmp_path / "paper.pdf", ["A page"])
    (tmp_path / "paper.tex").write_bytes(TEX if isinstance(TEX, bytes) else TEX.encode())
    (tmp_path / "refs.bib").write_text(BIB)
    skipped = []
    items = open_source(str(tmp_path), arxiv=client, on_skip=lambda what, why: skipped.append((what, why)))
    papers = [item.load() for item in items]
    assert [paper.title for paper in papers if paper.missing_source] == ["lonely"]
    assert {what.rpartition("/")[2] for what, _ in skipped} == {"paper.pdf", "refs.bib"}


def test_damaged_and_encrypted_pdfs_are_refused(tmp_path):
    path = tmp_path / "a.pdf"
    make_pdf(path, ["Secret"])
    writer = pypdf.PdfWriter(clone_from=path)
    writer.encrypt("password", algorithm="RC4-128")
    writer.write(path)
    for raw in (
        path.read_bytes(),
        b"%PDF-1.4 nothing",
        b"%PDF-1.7\n" + bytes(range(256)) * 40,
        b"%PDF-1.4\n1 0 obj <<",
    ):
        path.write_bytes(raw)
        with pytest.raises(BadInput):
            read_pdf_reference(str(path))


@pytest.mark.parametrize("name", ["a.bib", "a.ris", "a.json", "a.sqlite"])
@pytest.mark.parametrize("raw", [b"", b"nothing", b"@" * 1000, b"[" * 5000, b'{"title": [1]}', b"\xff\xfe\x00" * 50])
def test_files_without_references_are_refused(tmp_path, name, raw):
    (tmp_path / name).write_bytes(raw)
    with pytest.raises(BadInput):
        list(open_source(str(tmp_path / name)))


@pytest.mark.parametrize(
    ("name", "text", "title"),
    [
        (
            "a.ris",
            "TY  - JOUR\nTI  - On the\n\n  Ising model\nAU  - Doe, Jane\nPY  - 2001\nER  - \n",
            "On the Ising model",
        ),
        (
            "a.bib",
            "@article{a, title={On \\'{e}tale maps}, author={Doe, Jane}, abstract={%s}, year=2001}"
            % (r"\textbf{x} $y$ " * 20_000),
            "On étale maps",
        ),
    ],
    ids=["continued lines", "a long field that is not needed"],
)
def test_values_are_read_as_a_whole_and_only_those_needed(tmp_path, client, name, text, title):
    (tmp_path / name).write_text(text)
    (paper,) = load_all(tmp_path / name, client)
    assert (paper.title, list(paper.authors), paper.year) == (title, ["Jane Doe"], 2001)
