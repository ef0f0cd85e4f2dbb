import io
import json
import struct
import tarfile
import tracemalloc
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqkin.errors import BadInput, LimitReached
from eqkin.limits import LIMITS
from eqkin.sources.eprints import is_bulk_tar, iter_zip_members, read_eprint
from eqkin.sources.metadata import MetadataSnapshot
from eqkin.sources.readers import open_source
from tests.limits import changed_limits
from tests.sources.builders import TEX, check_read_or_refused, gz, link, tar_of

small_limits = changed_limits(paper_bytes=200_000, file_bytes=100_000, archive_bytes=500_000, paper_members=50)


def read(raw):
    return read_eprint(raw, "arxiv:1706.03762", "1706.03762.gz")


def zip_of(files, method=zipfile.ZIP_DEFLATED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, raw in files.items():
            archive.writestr(name, raw)
    return buffer.getvalue()


def flip(raw, at):
    return raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]


@pytest.mark.parametrize(
    "raw",
    [TEX, gz(TEX), gz(gz(TEX)), tar_of({"a.tex": TEX}), gz(gz(tar_of({"a.tex": TEX}))), zip_of({"a.tex": TEX})],
    ids=["tex", "gz", "gz twice", "tar", "tar.gz twice", "zip"],
)
def test_every_form_of_an_eprint_gives_the_same_text(raw):
    assert "a=b" in read(raw).text
    assert read(raw).year == 2017


def test_members_that_lead_out_of_the_archive_are_noted_and_skipped(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outside = ["../x.tex", "/abs.tex", "a/../../y.tex"]
    special = [link("l.tex", "/etc/passwd"), link("h.tex", "/etc/passwd", tarfile.LNKTYPE)]
    special += [link("dev", "", tarfile.CHRTYPE), link("pipe", "", tarfile.FIFOTYPE)]
    main = {"main.tex": TEX.replace(b"a=b", rb"a=b \input{l}")}
    inner = {"inner.tar": tar_of({"b.tex": TEX})}
    paper = read(tar_of(dict.fromkeys(outside, b"evil") | main | inner, *special))
    assert "a=b" in paper.text and "evil" not in paper.text and "root:" not in paper.text
    noted = " ".join(paper.notes)
    for name in (*outside, "l.tex", "h.tex", "dev", "pipe", "inner.tar"):
        assert repr(name) in noted
    assert any("evil" in note for note in read(zip_of(main | {"../evil.tex": "no"})).notes)
    assert list(tmp_path.iterdir()) == [] and not (tmp_path.parent / "x.tex").exists()


@pytest.mark.parametrize(
    "raw",
    [
        gz(b"\\x" * 1_000_000),
        gz(tar_of({"a.tex": b"\\x" * 100_000})),
        zip_of({"main.tex": b"x" * 200_000}),
        gz(tar_of({"figure.png": bytes(1_000_000), "a.tex": TEX})),
        gz(tar_of({f"{i}.tex": b"\\x" for i in range(60)})),
        gz(gz(gz(gz(TEX)))),
    ],
    ids=["one long file", "long member", "zip", "long figure", "many members", "gzip over gzip"],
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


def many_members(count):
    """Return a zip that consists of a directory and declares a single member."""
    entry = struct.pack("<4s4B4HL2L5H2L", b"PK\1\2", 20, 3, 20, *[0] * 8, 1, *[0] * 6) + b"a"
    return entry * count + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, count * len(entry), 0, 0)


@changed_limits(paper_members=5)
def test_zip_with_too_many_members_is_refused_before_they_are_listed(monkeypatch):
    monkeypatch.setattr(zipfile, "ZipFile", lambda *_: pytest.fail("the members were listed"))
    with pytest.raises(LimitReached):
        list(iter_zip_members(many_members(60), "z"))


@pytest.mark.parametrize("wrap", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@small_limits
def test_members_of_a_zip_within_the_zip_do_not_count(wrap):
    assert "a=b" in read(zip_of({"inner.zip": many_members(60), "main.tex": TEX}, wrap)).text


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
@small_limits
def test_zip_member_that_cannot_be_unpacked_in_bounded_memory_is_skipped(method):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("bomb.tex", b"a" * 1_000_000, method)
        archive.writestr("main.tex", TEX)
    paper = read(buffer.getvalue())
    assert "a=b" in paper.text
    assert any("bomb.tex" in note for note in paper.notes)


@changed_limits(member_header_bytes=10_000)
def test_huge_or_endless_extended_headers_of_a_tar_are_refused():
    info = tarfile.TarInfo("a.tex")
    info.pax_headers = {"comment": "x" * 50_000}
    header = tarfile.TarInfo("././@LongLink")
    header.type = tarfile.GNUTYPE_LONGNAME
    for raw in (info.tobuf(tarfile.PAX_FORMAT), header.tobuf(tarfile.GNU_FORMAT) * 5_000):
        with pytest.raises(LimitReached):
            read(raw)


def sparse_of_gnu(name, content):
    """Return a member in GNU's format for files with holes, with two more blocks of its header."""
    info = tarfile.TarInfo(name)
    info.type = tarfile.GNUTYPE_SPARSE
    info.size = len(content)
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[482] = 1
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + bytes(504) + b"\1" + bytes(7) + bytes(512) + content.ljust(512, b"\0")


def sparse_of_pax(name, content):
    """Return a member in the newer format: a map of what is there comes before the content."""
    info = tarfile.TarInfo(name)
    info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "100000"}
    info.size = 512 + len(content)
    where = b"1\n90000\n%d\n" % len(content)
    return info.tobuf(tarfile.PAX_FORMAT) + where.ljust(512, b"\0") + content.ljust(512, b"\0")


@pytest.mark.parametrize("make", [sparse_of_gnu, sparse_of_pax])
def test_sparse_members_are_noted_and_the_others_are_read(make):
    main = TEX.replace(b"a=b", rb"a=b \input{holes} \input{after}")
    before, after = tar_of({"main.tex": main})[:1024], tar_of({"after.tex": b"c=d"})
    paper = read(before + make("holes.tex", b"evil") + after)
    assert "a=b" in paper.text and "c=d" in paper.text and "evil" not in paper.text
    assert any("'holes.tex' is a sparse file" in note for note in paper.notes)


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
    ("raw", "why"),
    [
        (b"", "empty"),
        (gz(b""), "empty"),
        (gz(TEX)[:-20], "."),
        (gz(TEX)[:15], "."),
        (bytes(range(256)) * 8, "."),
        (gz(bytes(range(256)) * 8), "."),
        (bytes(1024), "no TeX"),
        (b"%!PS-Adobe", "PostScript only"),
        (b"%PDF-1.5 and so on", "PDF only"),
        (gz(b"%PDF-1.5 and so on"), "PDF only"),
        (tar_of({"a.tex": TEX * 20})[:1000], "truncated"),
        (flip(gz(tar_of({"a.tex": TEX})), -6 + len(gz(tar_of({"a.tex": TEX})))), "damaged"),
        (gz(b"%auto-ignore\nThis paper has been withdrawn by its author."), "withdrawn"),
        *((zip_of({"main.tex": TEX})[:cut], ".") for cut in (10, 60, 120)),
    ],
)
def test_damaged_or_empty_files_are_bad_input(raw, why):
    with pytest.raises(BadInput, match=why):
        read(raw)


MUTATED_TAR = tar_of({"main.tex": TEX, "b.sty": b"\\def\\x{y}", "long" * 40 + ".tex": b"z"}, link("l", "m"))


@given(st.data())
@small_limits
def test_mutated_eprint_gives_a_sound_paper_or_an_eqkin_error(data):
    raw = bytearray(data.draw(st.sampled_from([MUTATED_TAR, gz(MUTATED_TAR)])))
    for _ in range(data.draw(st.integers(1, 5))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(raw)))
    for mutated in (bytes(raw), bytes(raw[:cut])):
        check_read_or_refused(lambda mutated=mutated: read(mutated), LIMITS.paper_bytes)


def bulk(tmp_path: Path, cut: int | None = None) -> Path:
    path = tmp_path / "arXiv_src_1706_001.tar"
    folder = tarfile.TarInfo("1706")
    folder.type = tarfile.DIRTYPE
    members = {
        "1706/1706.03762.gz": gz(tar_of({"main.tex": TEX})),
        "1706/1706.00001.pdf": b"%PDF-1.4",
        "1706/1706.00002.gz": b"\x1f\x8bdamaged",
        "1706/hep-th9901001.gz": gz(TEX),
    }
    path.write_bytes(tar_of(members, folder)[:cut])
    return path


def test_bulk_tar_yields_its_members_and_counts_pdfs(tmp_path):
    path = bulk(tmp_path)
    skipped = []
    items = list(open_source(str(path), on_skip=lambda what, why: skipped.append((what, why))))
    path.unlink()  # the items carry their content
    assert [item.key for item in items] == ["arxiv:1706.03762", "arxiv:1706.00002", "arxiv:hep-th/9901001"]
    assert [why for _, why in skipped] == ["PDF only"]
    assert all(len(item.digest) == 32 for item in items)
    assert "a=b" in items[0].load().text
    with pytest.raises(BadInput):
        items[1].load()
    assert items[2].load().year == 1999


@pytest.mark.parametrize("cut", [3584, 3800, 4100], ids=["between members", "in a header", "in a member"])
def test_truncated_bulk_tar_yields_papers_before_the_damage(tmp_path, cut):
    iterator = open_source(str(bulk(tmp_path, cut)))
    assert [next(iterator).key, next(iterator).key] == ["arxiv:1706.03762", "arxiv:1706.00002"]
    with pytest.raises(BadInput):
        next(iterator)


def test_damaged_header_within_a_bulk_tar_is_an_error_and_not_the_end(tmp_path):
    path = bulk(tmp_path)
    raw = path.read_bytes()
    path.write_bytes(flip(raw, raw.index(b"1706/1706.00002") + 3))
    iterator = open_source(str(path))
    assert next(iterator).key == "arxiv:1706.03762"
    with pytest.raises(BadInput):
        list(iterator)


@changed_limits(packed_bytes=60)
def test_bulk_member_above_the_limit_fails_alone(tmp_path):
    items = list(open_source(str(bulk(tmp_path))))
    assert len(items) == 3
    with pytest.raises(LimitReached):
        items[0].load()


@pytest.mark.parametrize("source", ["bulk tar", "e-print"])
def test_metadata_is_part_of_the_paper_and_of_its_digest(tmp_path, source):
    path = bulk(tmp_path) if source == "bulk tar" else tmp_path / "1706.03762.gz"
    if source == "e-print":
        path.write_bytes(gz(TEX))
    items = [next(open_source(str(path)))]
    for name, title in [("a", "Attention"), ("b", "Attention"), ("c", "Another title")]:
        (tmp_path / name).write_text(json.dumps({"id": "1706.03762", "title": title}))
        snapshot = MetadataSnapshot(tmp_path / name, folder=tmp_path / "cache")
        items.append(next(open_source(str(path), metadata=snapshot)))
    none, first, same, other = (item.digest for item in items)
    assert first == same and len({none, first, other}) == 3
    assert items[1].load().title == "Attention"


@small_limits
def test_gzipped_tar_is_unpacked_no_further_than_the_limit(tmp_path):
    path = tmp_path / "bomb.tar.gz"
    path.write_bytes(gz(tar_of({"1706.00001.gz": gz(TEX), "1706.00002.gz": gz(TEX), "a.dat": bytes(20_000_000)})))
    iterator = open_source(str(path))
    assert "a=b" in next(iterator).load().text
    tracemalloc.start()
    try:
        with pytest.raises(LimitReached):
            list(iterator)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_a_tar_is_known_by_its_content(tmp_path):
    many, one = tmp_path / "bulk.tar.gz", tmp_path / "misleading.md"
    many.write_bytes(gz(tar_of({f"1706/1706.0000{i}.gz": gz(TEX) for i in range(1, 4)})))
    one.write_bytes(gz(tar_of({"main.tex": TEX, "fig.pdf": b"%PDF-1.4"})))
    assert is_bulk_tar(many) and not is_bulk_tar(one)
    assert len(list(open_source(str(many)))) == 3
    assert "a=b" in next(open_source(str(one))).load().text
