"""The collections that hold a library: schema, indexes, keys, and how rows are read and written.

    NAME         one row per equation: vector, terms, text, what filters need, and a record with all that is shown
    NAME_papers  one row per paper, written after its equations: its presence says that the paper is complete.
                 Also one row per equation without a vector, and a few records about the collection itself

A record is JSON, compressed and in base64: Milvus has no field for bytes, and takes 65,535 bytes per text. A collection
stores which model made its vectors and how it was made; queries of another model are refused.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import orjson
import zstandard

from eqkin.cluster.milvus.connection import WRITE_SECONDS, MilvusConnection, NoSuchCollection, import_pymilvus
from eqkin.errors import BadInput, CorruptData, StorageFailed
from eqkin.index.term_segments import TERM_SCHEME
from eqkin.limits import LIMITS

Row = dict[str, Any]

COLLECTION_FORMAT = 2
DEFAULT_COLLECTION = "eqkin"
MAX_TEXT_BYTES = 65_535  # of a text field
MAX_FIELDS = 256  # subject fields per paper that can be filtered by
MAX_FIELD_BYTES = 512  # of a subject field's name; a longer one is truncated
MAX_ROWS = 16_384  # that Milvus returns at once
NO_YEAR = -1_000_000_000  # an unknown year
SUMMARY_KEY, LEASE_KEY, PENDING_KEY = 0, 1, 2  # records about the collection itself, in NAME_papers
KEY_END = 1 << 63  # all keys are smaller
_RESERVED_KEYS = 16  # smaller keys are not given to names
_KEYS_PER_CALL = 1_000  # rows with long texts
_MAX_RECORD_BYTES = 64 * LIMITS.mathml_chars  # of an unpacked record
_COLLECTION_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
_PROPERTY = "eqkin"  # holds the collection's info where its description does not
_HNSW = {"M": 16, "efConstruction": 200}


@dataclass(frozen=True)
class CollectionInfo:
    """Network, format and server version with which a collection was made."""

    model: str  # digest of the network
    dimensions: int
    terms: int  # `TERM_SCHEME` of its terms; 0: it has none (Milvus before 2.4, which finds no parts of texts either)
    text: bool  # whether it has full text search (Milvus 2.5)
    server: str  # version of the server that made it
    format: int = COLLECTION_FORMAT


class MilvusCollection:
    """The two collections of a library. May be shared between threads.

    Raises:
        BadInput: Milvus allows no such name.
    """

    def __init__(self, connection: MilvusConnection, name: str) -> None:
        if not _COLLECTION_NAME.fullmatch(name):
            raise BadInput(
                f"{name[:80]!r} is not a valid name of a collection: use letters, digits and _, a letter first"
            )
        self.connection, self.name, self.papers = connection, name, f"{name}_papers"

    def __str__(self) -> str:
        return f"{self.connection.shown}: the collection {self.name}"

    def read_info(self) -> CollectionInfo:
        """Return how the collection was made.

        Raises:
            NoSuchCollection: there is none.
            BadInput: it was not made by eqkin.
            CorruptData: it was made by another version.
        """
        description = self.connection.call("describe_collection", self.name)
        text = description.get("properties", {}).get(_PROPERTY) or description.get("description", "")
        try:
            data = json.loads(text)
            number = data["format"]
            if number == COLLECTION_FORMAT:
                return CollectionInfo(**data)
        except (ValueError, TypeError, KeyError) as error:
            raise BadInput(f"{self} was not made by eqkin; choose another one with --collection") from error
        raise CorruptData(
            f"{self} has format {number}, this eqkin reads {COLLECTION_FORMAT}; "
            "push the library into another one with --collection"
        )

    def check_model(self, info: CollectionInfo, model: str) -> None:
        """Raise `BadInput` if another model made the collection's vectors."""
        if info.model != model:
            raise BadInput(
                f"{self} has vectors of the model {info.model}, not of {model}; "
                "choose another collection with --collection, or search with that model"
            )

    def prepare(self, model: str, dimensions: int) -> CollectionInfo:
        """Create the collections and their indexes as far as they do not exist; continues after an interruption.

        Raises:
            BadInput: the collection exists, and another model or another program made it.
        """
        try:
            info = self.read_info()
        except NoSuchCollection:
            version = self.connection.version
            numbers = re.search(r"(\d+)\.(\d+)", version)
            number = (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)
            terms = TERM_SCHEME if number >= (2, 4) else 0
            info = CollectionInfo(model, dimensions, terms, number >= (2, 5), version)
            self._create(self.name, _build_equation_schema(info), info)
        self.check_model(info, model)
        if info.terms not in (0, TERM_SCHEME):
            raise CorruptData(
                f"{self} was made by an eqkin with other terms; push the library into another one with --collection"
            )
        kind, schema = import_pymilvus().DataType, _start_schema(info, "", 2)  # Milvus wants a vector: there is none
        schema.add_field("content", kind.VARCHAR, max_length=256)  # identifies what was pushed
        schema.add_field("equations", kind.INT64)  # -1: the row is not a paper's
        schema.add_field("missing", kind.INT64)  # equations without a vector
        self._create(self.papers, schema)
        indexes: dict[str, tuple[str, str, dict[str, Any]]] = {"vector": ("HNSW", "IP", _HNSW)}
        if info.terms:
            indexes["terms"] = ("SPARSE_INVERTED_INDEX", "IP", {})
        if info.text:
            indexes["bm25"] = ("SPARSE_INVERTED_INDEX", "BM25", {})
        self._create_indexes(self.name, indexes)
        self._create_indexes(self.papers, {"vector": ("FLAT", "IP", {})})
        return info

    def fetch(self, where: str, keys: Iterable[int], fields: Iterable[str], *, strong: bool = False) -> dict[int, Row]:
        """Read rows of a collection by their keys; with `strong`, all that was written before is there."""
        wanted, found = list(keys), dict[int, Row]()
        for start in range(0, len(wanted), _KEYS_PER_CALL):
            part = wanted[start : start + _KEYS_PER_CALL]
            rows = self._query(where, f"key in {format_list(part)}", fields, len(part), strong=strong)
            found |= {row["key"]: row for row in rows}
        return found

    def scan(
        self,
        where: str,
        fields: Iterable[str],
        condition: str = "",
        *,
        rows: int,
        below: int = KEY_END,
        strong: bool = True,
    ) -> Iterator[Row]:
        """Read all rows with keys below a number that meet a condition; `rows` is about how many there are.

        Keys are evenly distributed, so ranges of keys have about the same size. With `strong`, the server waits once
        for what was written before, which is enough for all ranges.
        """
        pieces = max(1, -(-rows // (MAX_ROWS // 4)))
        edges = [below * at // pieces for at in range(pieces + 1)]
        ranges = list(zip(edges[:-1], edges[1:], strict=True))[::-1]
        while ranges:
            first, end = ranges.pop()
            part = f"key >= {first} and key <= {end - 1}"
            part = f"{part} and {condition}" if condition else part
            found = self._query(where, part, fields, MAX_ROWS, strong=strong, seconds=WRITE_SECONDS)
            strong = False
            if len(found) == MAX_ROWS and end - first > 1:  # there may be more
                middle = (first + end) // 2
                ranges += [(middle, end), (first, middle)]
            else:
                yield from found

    def count(self, where: str, *, strong: bool = False) -> int:
        """Count the rows of a collection."""
        level = "Strong" if strong else "Bounded"
        (row,) = self.connection.call("query", where, filter="", output_fields=["count(*)"], consistency_level=level)
        return int(row["count(*)"])

    def read_records(self, keys: Iterable[int], *, strong: bool = False) -> dict[int, Any]:
        """Read records of NAME_papers by their keys; those that do not exist are left out."""
        rows = self.fetch(self.papers, keys, ("record",), strong=strong)
        return {key: unpack_record(row["record"]) for key, row in rows.items()}

    def read_record(self, key: int) -> Any:
        """Read a record of NAME_papers as it is now; None if there is none."""
        return self.read_records([key], strong=True).get(key)

    def write_record(self, key: int, record: Any) -> None:
        """Write a record about the collection itself; raises `StorageFailed` if it is too large."""
        packed = pack_record(record)
        if packed is None:
            raise StorageFailed(f"{self}: a record of it is too large for Milvus")
        self.upsert(self.papers, [build_paper_row(key, packed)])

    def upsert(self, where: str, rows: list[Row]) -> None:
        """Write rows into a collection."""
        self.connection.call("upsert", where, seconds=WRITE_SECONDS, data=rows)

    def delete(self, where: str, keys: Iterable[int]) -> int:
        """Delete rows of a collection; return how many keys there were."""
        gone = list(keys)
        for start in range(0, len(gone), _KEYS_PER_CALL):
            self.connection.call("delete", where, seconds=WRITE_SECONDS, ids=gone[start : start + _KEYS_PER_CALL])
        return len(gone)

    def _query(
        self,
        where: str,
        condition: str,
        fields: Iterable[str],
        limit: int,
        *,
        strong: bool,
        seconds: float | None = None,
    ) -> list[Row]:
        level = "Strong" if strong else "Bounded"
        rows: list[Row] = self.connection.call(
            "query",
            where,
            seconds=seconds,
            filter=condition,
            output_fields=["key", *fields],
            limit=limit,
            consistency_level=level,
        )
        return rows

    def _create(self, name: str, schema: Any, info: CollectionInfo | None = None) -> None:
        if self.connection.call("has_collection", name):
            return
        other: Row = {}
        if info is not None and info.server.startswith("milvus_lite"):  # which does not keep descriptions
            other["properties"] = {_PROPERTY: _serialise_info(info)}
        try:
            self.connection.call(
                "create_collection", name, seconds=WRITE_SECONDS, schema=schema, consistency_level="Bounded", **other
            )
        except StorageFailed:
            if not self.connection.call("has_collection", name):  # otherwise another process was faster
                raise

    def _create_indexes(self, name: str, wanted: dict[str, tuple[str, str, dict[str, Any]]]) -> None:
        existing = set(self.connection.call("list_indexes", name))
        for field, (kind, metric, parameters) in wanted.items():
            if field not in existing:
                index = import_pymilvus().MilvusClient.prepare_index_params()
                index.add_index(field, index_name=field, index_type=kind, metric_type=metric, params=parameters)
                self.connection.call("create_index", name, seconds=WRITE_SECONDS, index_params=index)
        self.connection.load(name, WRITE_SECONDS)


def _serialise_info(info: CollectionInfo) -> str:
    return json.dumps(vars(info), sort_keys=True)


def _build_equation_schema(info: CollectionInfo) -> Any:
    module = import_pymilvus()
    kind, schema = module.DataType, _start_schema(info, _serialise_info(info), info.dimensions)
    if info.terms:
        schema.add_field("terms", kind.SPARSE_FLOAT_VECTOR)
    if info.text:
        schema.add_field("words", kind.VARCHAR, max_length=MAX_TEXT_BYTES, enable_analyzer=True, mmap_enabled=True)
        schema.add_field("bm25", kind.SPARSE_FLOAT_VECTOR)
        schema.add_function(
            module.Function(
                name="words_to_bm25",
                function_type=module.FunctionType.BM25,
                input_field_names=["words"],
                output_field_names=["bm25"],
            )
        )
    schema.add_field("authors", kind.VARCHAR, max_length=MAX_TEXT_BYTES)
    return schema


def _start_schema(info: CollectionInfo, description: str, dimensions: int) -> Any:
    """Start a schema with the fields that both collections have."""
    module = import_pymilvus()
    kind = module.DataType
    schema = module.MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False, description=description)
    schema.add_field("key", kind.INT64, is_primary=True)
    schema.add_field("vector", kind.FLOAT_VECTOR, dim=dimensions)
    on_disk = {"mmap_enabled": True} if info.text else {}  # records are read for hits alone; possible from about 2.5 on
    schema.add_field("record", kind.VARCHAR, max_length=MAX_TEXT_BYTES, **on_disk)
    for name in ("paper_key", "year"):
        schema.add_field(name, kind.INT64)
    schema.add_field(
        "fields", kind.ARRAY, element_type=kind.VARCHAR, max_capacity=MAX_FIELDS, max_length=MAX_FIELD_BYTES
    )
    return schema


def hash_name(name: str) -> int:
    """Return 63 bits of a name's hash; two of 30 million names share a key once in twenty thousand collections."""
    number = int.from_bytes(blake2b(name.encode(errors="surrogatepass"), digest_size=8).digest(), "big") >> 1
    return number if number >= _RESERVED_KEYS else number + _RESERVED_KEYS


def hash_equation(paper: str, number: int) -> int:
    """Return the key of an equation: what is pushed twice is there once."""
    return hash_name(f"{paper}#{number}")


def pack_record(record: Any) -> str | None:
    """Return a record as text that fits into a field; None if it is too large."""
    packed = base64.b64encode(zstandard.ZstdCompressor(level=9).compress(orjson.dumps(record))).decode()
    return packed if len(packed) <= MAX_TEXT_BYTES else None


def unpack_record(packed: str) -> Any:
    """Return the record that `pack_record` packed; raises `CorruptData`."""
    try:
        compressed = base64.b64decode(packed, validate=True)
        content = zstandard.ZstdDecompressor().decompress(compressed, max_output_size=_MAX_RECORD_BYTES)
        return orjson.loads(content)
    except (binascii.Error, zstandard.ZstdError, orjson.JSONDecodeError) as error:
        raise CorruptData(
            f"a record in Milvus is damaged ({error}); push the library into another collection"
        ) from error


def build_paper_row(key: int, record: str, **other: Any) -> Row:
    """Build a row of NAME_papers; by default not one of a paper."""
    row: Row = {"key": key, "vector": [1.0, 0.0], "record": record, "paper_key": 0, "year": NO_YEAR, "fields": []}
    return row | {"content": "", "equations": -1, "missing": 0} | other


def format_list(numbers: Iterable[int]) -> str:
    """Format numbers as a list in an expression."""
    return f"[{', '.join(str(int(number)) for number in numbers)}]"
