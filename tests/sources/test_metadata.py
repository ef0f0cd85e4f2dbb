import gzip
import pickle

import orjson
import pytest
import zstandard

from eqkin.errors import BadInput, CorruptData
from eqkin.sources.metadata import ArxivMetadata, MetadataSnapshot, apply_metadata
from eqkin.sources.paper import Paper

RECORDS = [
    {
        "id": "0704.0001",
        "title": "On\n  primes",
        "authors_parsed": [["Doe", "Jane", ""], ["Roe", "R.", "Jr."]],
        "categories": "hep-th math.NT",
        "abstract": "  We count. ",
        "license": "http://creativecommons.org/licenses/by/4.0/",
        "update_date": "2008-11-26",
    },
    {"id": "hep-th/9901001", "title": "Strings", "authors": "A and B, C"},
    {"id": "0704.0003", "title": 2, "authors_parsed": [3, [4], ["A"]], "categories": ["x"], "update_date": None},
]
LINES = b"\n".join([orjson.dumps(RECORDS[0]), b"not json", b"[]", b'{"id": 3}', *map(orjson.dumps, RECORDS[1:])])


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress], ids=["plain", "gzip", "zstd"])
def test_snapshot_finds_papers_by_identifier(tmp_path, pack):
    path = tmp_path / "snapshot.json"
    path.write_bytes(pack(LINES))
    snapshot = MetadataSnapshot(path, folder=tmp_path / "cache")
    meta = snapshot.get("0704.0001v2")
    assert (meta.title, meta.year, meta.abstract) == ("On primes", 2007, "We count.")
    assert (meta.authors, meta.fields) == (("Jane Doe", "R. Roe Jr."), ("hep-th", "math.NT"))
    assert snapshot.get("arxiv:hep-th/9901001").authors == ("A", "B", "C")
    assert snapshot.get("0704.0003").authors == ("A",)  # what has an odd type is left out
    assert snapshot.get("0704.0002") is None and snapshot.get("nonsense") is None
    assert pickle.loads(pickle.dumps(snapshot)).get("0704.0001") == meta


def test_table_is_built_once_and_again_when_the_snapshot_changes(tmp_path):
    path = tmp_path / "snapshot.json"
    path.write_bytes(LINES)
    for _ in range(2):
        MetadataSnapshot(path, folder=tmp_path / "cache")
    assert len(list((tmp_path / "cache").iterdir())) == 1
    path.write_bytes(orjson.dumps({"id": "0704.0002", "title": "New"}))
    assert MetadataSnapshot(path, folder=tmp_path / "cache").get("0704.0002").title == "New"


@pytest.mark.parametrize("raw", [b"", b"nothing here", gzip.compress(LINES)[:-9]])
def test_snapshot_without_records_is_bad_input_and_leaves_no_table(tmp_path, raw):
    path = tmp_path / "snapshot.json"
    path.write_bytes(raw)
    with pytest.raises(BadInput):
        MetadataSnapshot(path, folder=tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_damaged_table_is_named_in_the_error(tmp_path):
    path = tmp_path / "snapshot.json"
    path.write_bytes(LINES)
    snapshot = MetadataSnapshot(path, folder=tmp_path / "cache")
    (table,) = (tmp_path / "cache").iterdir()
    table.write_bytes(b"garbage" * 1000)
    with pytest.raises(CorruptData, match="metadata-"):
        snapshot.get("0704.0001")


def test_apply_metadata_keeps_fields_that_the_metadata_lacks():
    paper = Paper("k", "t", title="Own", year=2001, license="own")
    assert apply_metadata(paper, ArxivMetadata("x", title="Better", fields=("hep-th",))) is paper
    assert (paper.title, paper.year, paper.fields, paper.license) == ("Better", 2001, ["hep-th"], "own")
