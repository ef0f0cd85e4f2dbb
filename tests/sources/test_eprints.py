import io
import json
import pickle
import struct
import tarfile
import tracemalloc
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqkin.errors import BadInput, EqkinError, LimitReached
from eqkin.limits import LIMITS
from eqkin.sources.archives import iter_zip_members
from eqkin.sources.eprints import is_bulk_tar, iter_bulk_items, read_eprint
from eqkin.sources.files import open_gzip
from eqkin.sources.metadata import ArxivMetadata, MetadataSnapshot
from eqkin.sources.readers import open_source
from tests.limits import changed_limits
from tests.sources.builders import TEX, check_read_or_refused, gz, link, tar_of

small_limits = changed_limits(paper_bytes=200_000, file_bytes=100_000, archive_bytes=500_000, paper_members=50)


def read(raw):
    return read_eprint(raw, "arxiv:1706.03762", "1706.03762.gz")


@pytest.mark.parametrize(
    "raw",
    [TEX, gz(TEX), gz(gz(TEX)), tar_of({"a.tex": TEX}), gz(tar_of({"a.tex": TEX})), gz(gz(tar_of({"a.tex": TEX})))],
    ids=["tex", "gz", "gz twice", "tar", "tar.gz", "tar.gz twice"],
)
def test_every_form_of_an_eprint_gives_the_same_text(raw):
    assert "a=b" in read(raw).text
    assert read(raw).year == 2017


def test_zip_of_a_project_is_read():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("main.tex", TEX.replace(b"a=b", rb"\input{x}"))
        archive.writestr("x.tex", "c=d")
        archive.writestr("../evil.tex", "no")
    paper = read(buffer.getvalue())
    assert "c=d" in paper.text
    assert any("evil" in note for note in paper.notes)


@small_limits
def test_zip_that_unpacks_to_too_much_is_stopped():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("main.tex", b"x" * 200_000)
    with pytest.raises(LimitReached):
        read(buffer.getvalue())


def directory(count):
    entry = struct.pack("<4s4B4HL2L5H2L", b"PK\1\2", 20, 3, 20, *[0] * 8, 1, *[0] * 6) + b"a"
    return entry * count


def many_members(count):
    """Return a zip that consists of a directory and declares a single member."""
    entries = directory(count)
    return entries + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, len(entries), 0, 0)


@changed_limits(paper_members=5)
def test_zip_with_too_many_members_is_refused_before_they_are_listed(monkeypatch):
    monkeypatch.setattr(zipfile, "ZipFile", lambda *_: pytest.fail("the members were listed"))
    with pytest.raises(LimitReached):
        list(iter_zip_members(many_members(60), "z"))


@pytest.mark.parametrize("wrap", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@small_limits
def test_members_of_a_zip_within_the_zip_do_not_count(wrap):
    inner = many_members(60)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", wrap) as archive:
        archive.writestr("inner.zip", inner)
        archive.writestr("main.tex", TEX)
    assert "a=b" in read(buffer.getvalue()).text


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
@small_limits
def test_zip_member_that_cannot_be_unpacked_in_bounded_memory_is_skipped(method):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("bomb.tex", b"a" * 1_000_000, method)
        archive.writestr("main.tex", TEX)
    paper = read(buffer.getvalue())
    assert "a=b" in paper.text
    assert any("bomb.tex" in note and "bounded memory" in note for note in paper.notes)


@pytest.mark.parametrize("cut", [10, 60, 120])
def test_truncated_zip_is_bad_input(cut):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("main.tex", TEX)
    with pytest.raises(BadInput):
        read(buffer.getvalue()[:cut])


@pytest.mark.parametrize("wrap", [lambda raw: raw, gz], ids=["plain", "gzipped"])
def test_pdf_is_refused_as_pdf_only(wrap):
    with pytest.raises(BadInput, match="PDF only"):
        read(wrap(b"%PDF-1.5 and so on"))


def test_members_that_lead_out_of_the_archive_are_noted_and_skipped():
    device = link("dev", "", tarfile.CHRTYPE)
    fifo = link("pipe", "", tarfile.FIFOTYPE)
    raw = tar_of(
        {"../x.tex": b"evil", "/abs.tex": b"evil", "a/../../y.tex": b"evil", "main.tex": TEX},
        link("l.tex", "/etc/passwd"),
        link("h.tex", "/etc/passwd", tarfile.LNKTYPE),
        device,
        fifo,
    )
    paper = read(raw)
    assert "a=b" in paper.text and "evil" not in paper.text
    noted = " ".join(paper.notes)
    for name in ("../x.tex", "/abs.tex", "a/../../y.tex", "l.tex", "h.tex", "dev", "pipe"):
        assert repr(name) in noted


def test_link_named_like_an_include_is_not_followed():
    raw = tar_of({"main.tex": TEX.replace(b"a=b", rb"\input{l}")}, link("l.tex", "/etc/passwd"))
    assert "root:" not in read(raw).text


def test_reading_an_eprint_writes_nothing_to_disk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    read(gz(tar_of({"main.tex": TEX, "../up.tex": TEX})))
    assert list(tmp_path.iterdir()) == [] and not (tmp_path.parent / "up.tex").exists()


def test_nested_archives_are_noted_and_not_opened():
    paper = read(tar_of({"main.tex": TEX, "inner.tar": tar_of({"b.tex": TEX})}))
    assert any("inner.tar" in note for note in paper.notes)


@pytest.mark.parametrize(
    "raw",
    [
        gz(b"\\x" * 1_000_000),
        gz(tar_of({"a.tex": b"\\x" * 100_000})),
        gz(tar_of({"figure.png": bytes(1_000_000), "a.tex": TEX})),
        gz(tar_of({f"{i}.tex": b"\\x" for i in range(60)})),
        gz(gz(gz(gz(TEX)))),
    ],
    ids=["one long file", "long member", "long figure", "many members", "gzip over gzip"],
)
@small_limits
def test_archive_bombs_stop_at_the_limits(raw):
    with pytest.raises(LimitReached):
        read(raw)


@small_limits
def test_memory_stays_bounded_for_a_gzip_bomb():
    raw = gz(bytes([92]) * 40_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(LimitReached):
            read(raw)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


@changed_limits(member_header_bytes=10_000)
def test_huge_extended_header_of_a_tar_is_refused():
    info = tarfile.TarInfo("a.tex")
    info.pax_headers = {"comment": "x" * 50_000}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(info)
    with pytest.raises(LimitReached):
        read(buffer.getvalue())


def test_long_chain_of_extended_headers_does_not_recurse():
    header = tarfile.TarInfo("././@LongLink")
    header.type = tarfile.GNUTYPE_LONGNAME
    header.size = 0
    with pytest.raises(EqkinError):
        read(header.tobuf(tarfile.GNU_FORMAT) * 5_000)


@pytest.mark.parametrize("style", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_names_are_read_in_both_dialects(style):
    name = "folder/" * 40 + "name.tex"
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=style) as tar:
        for path, raw in {"main.tex": TEX.replace(b"a=b", rb"\input{" + name.encode() + b"}"), name: b"c=d"}.items():
            info = tarfile.TarInfo(path)
            info.size = len(raw)
            tar.addfile(info, io.BytesIO(raw))
    paper = read(buffer.getvalue())
    assert "c=d" in paper.text and paper.notes == []


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        gz(b""),
        gz(TEX)[:-20],
        gz(TEX)[:15],
        bytes(range(256)) * 8,
        gz(bytes(range(256)) * 8),
        bytes(1024),
        b"%!PS-Adobe",
    ],
    ids=["empty", "empty gz", "cut gz", "short gz", "garbage", "garbage gz", "empty tar", "postscript"],
)
def test_damaged_or_empty_files_are_bad_input(raw):
    with pytest.raises(BadInput):
        read(raw)


def test_truncated_tar_within_a_member_is_bad_input():
    with pytest.raises(BadInput, match="truncated"):
        read(tar_of({"a.tex": TEX * 20})[:1000])


def test_flipped_byte_in_gzip_is_bad_input():
    raw = bytearray(gz(tar_of({"a.tex": TEX})))
    raw[-6] ^= 1
    with pytest.raises(BadInput, match="damaged"):
        read(bytes(raw))


def test_withdrawn_paper_is_bad_input():
    with pytest.raises(BadInput, match="withdrawn"):
        read(gz(b"%auto-ignore\nThis paper has been withdrawn by its author."))


@given(st.binary(max_size=3000))
@small_limits
def test_arbitrary_eprint_gives_a_sound_paper_or_an_eqkin_error(raw):
    for data in (raw, gz(raw)):
        check_read_or_refused(lambda data=data: read(data), len(raw))


@given(st.data())
@small_limits
def test_mutated_eprint_gives_a_sound_paper_or_an_eqkin_error(data):
    raw = bytearray(data.draw(st.sampled_from([MUTATED_TAR, gz(MUTATED_TAR)])))
    for _ in range(data.draw(st.integers(1, 5))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(raw)))
    for mutated in (bytes(raw), bytes(raw[:cut])):
        check_read_or_refused(lambda mutated=mutated: read(mutated), LIMITS.paper_bytes)


MUTATED_TAR = tar_of({"main.tex": TEX, "b.sty": b"\\def\\x{y}", "long" * 40 + ".tex": b"z"}, link("l", "m"))


def bulk(tmp_path: Path, cut: int | None = None) -> Path:
    path = tmp_path / "arXiv_src_1706_001.tar"
    folder = tarfile.TarInfo("1706")
    folder.type = tarfile.DIRTYPE
    raw = tar_of(
        {
            "1706/1706.03762.gz": gz(tar_of({"main.tex": TEX})),
            "1706/1706.00001.pdf": b"%PDF-1.4",
            "1706/1706.00002.gz": b"\x1f\x8bdamaged",
            "1706/hep-th9901001.gz": gz(TEX),
        },
        folder,
    )
    path.write_bytes(raw[:cut])
    return path


def test_bulk_tar_yields_its_members_and_counts_pdfs(tmp_path):
    skipped = []
    items = list(open_source(str(bulk(tmp_path)), on_skip=lambda what, why: skipped.append((what, why))))
    assert [item.key for item in items] == ["arxiv:1706.03762", "arxiv:1706.00002", "arxiv:hep-th/9901001"]
    assert [why for _, why in skipped] == ["PDF only"]
    assert all(len(item.digest) == 32 for item in items)
    assert "a=b" in items[0].load().text
    with pytest.raises(BadInput):
        items[1].load()
    assert items[2].load().year == 1999


def test_bulk_items_can_be_sent_to_another_process_without_the_tar(tmp_path):
    path = bulk(tmp_path)
    items = pickle.loads(pickle.dumps(list(open_source(str(path)))))
    path.unlink()
    assert "a=b" in items[0].load().text


@pytest.mark.parametrize("cut", [3584, 3800, 4100], ids=["between members", "in a header", "in a member"])
def test_truncated_bulk_tar_yields_papers_before_the_damage(tmp_path, cut):
    path = bulk(tmp_path, cut)
    items = []
    with pytest.raises(BadInput, match="truncated"):
        for item in open_source(str(path)):
            items.append(item)
    assert [item.key for item in items] == ["arxiv:1706.03762", "arxiv:1706.00002"]


def test_damaged_header_within_a_bulk_tar_is_an_error_and_not_the_end(tmp_path):
    path = bulk(tmp_path)
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"1706/1706.00002") + 3] ^= 4
    path.write_bytes(raw)
    items = []
    with pytest.raises(BadInput):
        items.extend(iter_bulk_items(path))
    assert items == [] or items[0].key == "arxiv:1706.03762"
    iterator = iter_bulk_items(path)
    assert next(iterator).key == "arxiv:1706.03762"


@changed_limits(packed_bytes=60)
def test_bulk_member_above_the_limit_fails_alone(tmp_path):
    items = list(open_source(str(bulk(tmp_path))))
    assert len(items) == 3
    with pytest.raises(LimitReached):
        items[0].load()


def test_bulk_papers_get_their_metadata(tmp_path):
    known = {"1706.03762": ArxivMetadata("1706.03762", title="Attention", fields=("cs.CL", "cs.LG"))}
    paper = next(iter_bulk_items(bulk(tmp_path), known.get)).load()
    assert (paper.title, paper.fields) == ("Attention", ["cs.CL", "cs.LG"])


@pytest.mark.parametrize("source", ["bulk tar", "e-print"])
def test_digest_covers_the_metadata_that_was_used(tmp_path, source):
    if source == "bulk tar":
        path = bulk(tmp_path)
    else:
        path = tmp_path / "1706.03762.gz"
        path.write_bytes(gz(TEX))
    snapshots = []
    for name, title in [("a", "Attention"), ("b", "Attention"), ("c", "Another title")]:
        (tmp_path / name).write_text(json.dumps({"id": "1706.03762", "title": title}))
        snapshots.append(MetadataSnapshot(tmp_path / name, folder=tmp_path / "cache"))
    none, first, same, other = (next(open_source(str(path), metadata=m)).digest for m in (None, *snapshots))
    assert first == same and len({none, first, other}) == 3


@small_limits
def test_gzipped_tar_is_unpacked_no_further_than_the_limit(tmp_path, monkeypatch):
    path = tmp_path / "bomb.tar.gz"
    path.write_bytes(gz(tar_of({"1706.00001.gz": gz(TEX), "1706.00002.gz": gz(TEX), "a.dat": bytes(20_000_000)})))
    pulled = []

    def counted(stream, limit):
        unpacked = open_gzip(stream, limit)
        pulled.append(unpacked)
        return unpacked

    monkeypatch.setattr("eqkin.sources.eprints.open_gzip", counted)
    assert is_bulk_tar(path)
    iterator = iter_bulk_items(path)
    assert "a=b" in next(iterator).load().text
    with pytest.raises(LimitReached):
        list(iterator)
    assert pulled and all(stream.n_pulled <= LIMITS.archive_bytes + 65_536 for stream in pulled)


def test_gzipped_bulk_tar_is_read(tmp_path):
    path = tmp_path / "bulk.tar.gz"
    path.write_bytes(gz(tar_of({f"1706/1706.0000{i}.gz": gz(TEX) for i in range(1, 4)})))
    assert len(list(open_source(str(path)))) == 3


def test_tar_of_one_paper_is_not_a_bulk_tar(tmp_path):
    path = tmp_path / "paper.tar"
    path.write_bytes(tar_of({"main.tex": TEX, "fig.pdf": b"%PDF-1.4"}))
    assert not is_bulk_tar(path)


def test_kind_of_an_archive_depends_on_content_not_name(tmp_path):
    path = tmp_path / "misleading.md"
    path.write_bytes(gz(tar_of({"main.tex": TEX})))
    assert "a=b" in next(open_source(str(path))).load().text
