import gzip
import json
import os
import pickle

import orjson
import pytest
import zstandard

from eqkin.errors import BadInput, LimitReached
from eqkin.sources.readers import open_source
from tests.limits import changed_limits

RECORD = {
    "doc_id": "abc",
    "latex": "\\section{A}\x00 x",
    "format": "md",
    "title": "A title",
    "lang": "en",
    "license": "MIT",
    "discipline": "statistics",
    "repo": "o/r",
    "parent": "p",
    "path": "a/b.md",
    "arxiv_ids_cited": ["1706.03762v5", "junk", "https://arxiv.org/abs/1706.03762", 7, "math.AG/0309136"],
    "local_macros": r"\def\x{y}",
}
LINES = (
    orjson.dumps(RECORD)
    + b"\n\nnot json\n[1]\n"
    + orjson.dumps({"doc_id": "no-text"})
    + b'\n{"doc_id": 7, "latex": "z"}\n'
    + b"[" * 100_000
)


def write(tmp_path, name, raw):
    path = tmp_path / name
    path.write_bytes(raw)
    return str(path)


def outcomes(items):
    result = []
    for item in items:
        try:
            result.append(item.load().key)
        except BadInput:
            result.append("bad")
    return result


def test_record_fields_become_fields_of_the_paper(tmp_path):
    paper = next(open_source(write(tmp_path, "a.jsonl", LINES))).load()
    assert (paper.key, paper.text, paper.kind) == ("record:abc", "\\section{A} x", "jsonl")
    assert (paper.title, paper.lang, paper.license) == ("A title", "en", "MIT")
    assert (paper.fields, paper.group, paper.origin) == (["statistics"], "o/r", "a/b.md")
    assert (paper.cites, paper.styles) == (["1706.03762", "math/0309136"], [r"\def\x{y}"])


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("a.jsonl", lambda raw: raw),
        ("a.jsonl.gz", gzip.compress),
        ("a.jsonl.zst", zstandard.compress),
        ("a.jsonl.zst", lambda raw: zstandard.compress(raw[:100]) + zstandard.compress(raw[100:])),
    ],
    ids=["plain", "gzip", "zstd", "two frames"],
)
def test_bad_line_fails_alone(tmp_path, name, pack):
    items = list(open_source(write(tmp_path, name, pack(LINES))))
    assert outcomes(items) == ["record:abc", "bad", "bad", "bad", "record:7", "bad"]
    assert len({item.key for item in items}) == len(items)
    assert outcomes(pickle.loads(pickle.dumps(items))) == outcomes(items)


def test_year_is_an_integer_in_range_or_none(tmp_path):
    years = [1999, 0, 10_000, 10**30, True, "1999", 1999.0, None]
    raw = b"\n".join(json.dumps({"latex": "x", "year": year}).encode() for year in years)
    found = [item.load().year for item in open_source(write(tmp_path, "a.jsonl", raw))]
    assert found == [1999] + [None] * 7


@pytest.mark.parametrize("record", [{"id": 1}, {"key": "k"}, {}, {"doc_id": True}, {"doc_id": " "}])
def test_records_of_two_files_have_two_keys_unless_they_name_a_document(tmp_path, record):
    raw = orjson.dumps(record | {"latex": "x"})
    paths = [write(tmp_path, name, raw) for name in ("a.jsonl", "b.jsonl")]
    keys = [next(open_source(path)).key for path in paths]
    assert [key.split("#")[0] for key in keys] == [f"file:{os.path.realpath(path)}" for path in paths]


@changed_limits(line_bytes=1_000)
def test_overlong_line_fails_alone(tmp_path):
    raw = b'{"doc_id": "a", "latex": "x"}\n' + b"y" * 5_000 + b'\n{"doc_id": "b", "latex": "x"}\n' + b"z" * 5_000
    items = list(open_source(write(tmp_path, "a.jsonl", raw)))
    assert [item.key for item in items if item.key.startswith("record")] == ["record:a", "record:b"]
    with pytest.raises(LimitReached):
        items[1].load()
    with pytest.raises(LimitReached):
        items[3].load()


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_truncated_file_yields_records_before_the_damage(tmp_path, pack):
    lines = b"".join(orjson.dumps({"doc_id": str(i), "latex": str(i * i) * 40}) + b"\n" for i in range(20_000))
    raw = pack(lines)
    found = []
    with pytest.raises(BadInput):
        for item in open_source(write(tmp_path, "a.jsonl.zst", raw[: len(raw) // 2])):
            found.append(item.key)
    assert found[:2] == ["record:0", "record:1"]


@pytest.mark.parametrize("rest", [b"\n" * 4_000_000, b"y" * 4_000_000], ids=["blank lines", "an endless line"])
@changed_limits(line_bytes=150_000)
def test_compressed_file_that_unpacks_to_far_more_than_text_stops(tmp_path, rest):
    raw = zstandard.compress(b'{"id": "a", "latex": "x"}\n') + zstandard.compress(rest)
    read = []
    with pytest.raises(LimitReached):
        for item in open_source(write(tmp_path, "a.jsonl.zst", raw)):
            read.append(item.key)
    assert len(read) == 1
