"""`MilvusCollection`: the collections of a Milvus server (2.5 or newer) that hold libraries.

    NAME         one row per equation: vector, terms, words, what filters need, and a record with all that is shown
    NAME_papers  one row per paper, written after its equations: its presence says that the paper is complete.
                 The row with key 0 describes the collection

A record is JSON in a text field. A collection stores which network made its vectors; queries of another are refused.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

import orjson

from eqkin.errors import BadInput, CorruptData, EqkinError, StorageFailed, Unreachable

Row: TypeAlias = dict[str, Any]

COLLECTION_FORMAT = 3
# The longest text field that Milvus takes.
MAX_TEXT_BYTES = 65_535
# Subject fields of a paper that can be filtered by.
MAX_FIELDS = 256
# The longest name of a subject field; a longer one is truncated.
MAX_FIELD_BYTES = 512
# Rows that Milvus returns at once.
MAX_ROWS = 16_384
# An unknown year.
NO_YEAR = -1_000_000_000
# The key of the row of NAME_papers that describes the collection.
STATE_KEY = 0

_ANALYZER = {
    "tokenizer": "standard",
    "filter": ["lowercase", "asciifolding", {"type": "stemmer", "language": "english"}],
}
_CALL_SECONDS = 30.0
# Milvus Lite closes connections that send more pings
_GRPC_OPTIONS = {"grpc.keepalive_permit_without_calls": 0, "grpc.keepalive_time_ms": 60_000}
# Rows with long texts that are read at once.
_KEYS_PER_CALL = 1_000
_NO_COLLECTION = 100
# Out of memory, disk or quota.
_EXHAUSTED = frozenset({3, 4, 7, 8, 9})
_COLLECTION_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")


class NoSuchCollection(BadInput):
    """The server has no collection of this name."""


class MilvusCollection:
    """The two collections of a name. May be shared between threads.

    Args:
        uri: `http://host:port`, `https://user:password@host:port/database`, or the path of a file of Milvus Lite that
            ends with `.db`. Without a user there, `$MILVUS_TOKEN` is used, if it is set.
        name: Of the collection of equations.

    Raises:
        BadInput: the address or the name is invalid, or pymilvus is not installed.
    """

    def __init__(self, uri: str, name: str) -> None:
        if not _COLLECTION_NAME.fullmatch(name):
            raise BadInput(
                f"{name[:80]!r} is not a valid name of a collection: use letters, digits and _, a letter first"
            )
        self._uri, self.shown, self._token = parse_address(uri)
        self._milvus = _import_pymilvus()
        self._client: Any = None
        self._connecting = threading.Lock()
        self.name: str = name
        self.papers: str = f"{name}_papers"

    def __str__(self) -> str:
        return f"{self.shown}: the collection {self.name}"

    def call(self, method: str, where: str = "", **arguments: Any) -> Any:
        """Call a method of `pymilvus.MilvusClient` by its name; the first call connects.

        Args:
            method: Name of the method.
            where: The collection; "" for a method that takes none.
            arguments: Of the method.

        Raises:
            NoSuchCollection: the collection does not exist.
            StorageFailed: the server is out of memory, disk or quota.
            Unreachable: the server does not answer, or refuses.
        """
        named = {"collection_name": where} if where else {}
        with self._translating_errors():
            with self._connecting:
                if self._client is None:
                    token = self._token or os.environ.get("MILVUS_TOKEN", "")
                    self._client = self._milvus.MilvusClient(
                        uri=self._uri, token=token, timeout=_CALL_SECONDS, grpc_options=_GRPC_OPTIONS
                    )
                client = self._client
            return getattr(client, method)(**named, timeout=_CALL_SECONDS, **arguments)

    @contextmanager
    def _translating_errors(self) -> Iterator[None]:
        import grpc

        try:
            yield
        except (self._milvus.MilvusException, grpc.RpcError, ValueError) as error:
            raise self._translate_error(error) from error

    def _translate_error(self, error: Exception) -> EqkinError:
        code = getattr(error, "code", None)
        message = " ".join(str(getattr(error, "message", "") or error).split())[:300]
        if code == _NO_COLLECTION:
            command = f"`eqkin push --milvus {self.shown} --collection {self.name}`"
            return NoSuchCollection(
                f"{self.shown}: has no collection {self.name}; push a library into it with {command}"
            )
        if code in _EXHAUSTED:
            return StorageFailed(f"{self.shown}: Milvus is out of memory, disk or quota ({message})")
        return Unreachable(f"{self.shown}: Milvus does not answer or refuses ({message}); is it running?")

    def close(self) -> None:
        """Close the connection."""
        with self._connecting:
            if self._client is not None:
                self._client.close()
                self._client = None

    def read_state(self, model: str) -> Row:
        """Return what describes the collection, after it was loaded into the server's memory.

        Args:
            model: Digest of the network that makes the vectors of queries.

        Raises:
            NoSuchCollection: there is none.
            CorruptData: it was made by another version of eqkin.
            BadInput: another network made its vectors, or another program made it.
        """
        for name in (self.name, self.papers):
            self.call("load_collection", name)
        rows = self.fetch(self.papers, [STATE_KEY], ("record",), strong=True)
        if not rows:
            raise BadInput(f"{self} was not made by eqkin; choose another one with --collection")
        state: Row = unpack_record(rows[STATE_KEY]["record"])
        if state["format"] != COLLECTION_FORMAT:
            raise CorruptData(
                f"{self} has format {state['format']}, this eqkin reads {COLLECTION_FORMAT}; "
                "push the library into another one with --collection"
            )
        if state["model"] != model:
            raise BadInput(
                f"{self} has vectors of the model {state['model']}, not of {model}; "
                "choose another collection with --collection, or search with that model"
            )
        return state

    def write_state(self, state: Row) -> None:
        """Describe the collection."""
        packed = pack_record(state)
        if packed is None:
            raise StorageFailed(f"{self}: its description is too large for Milvus")
        self.upsert(self.papers, [build_paper_row(STATE_KEY, packed, "")])

    def create(self, model: str, dimensions: int) -> None:
        """Create the collections, unless they exist."""
        if not self.call("has_collection", self.name):
            schema, indexes = self._describe_equations(dimensions)
            self._create(self.name, schema, indexes)
        if not self.call("has_collection", self.papers):
            kind = self._milvus.DataType
            # Milvus wants a vector, although papers have none
            schema = self._start_schema(2)
            # the digest of what was pushed
            schema.add_field("content", kind.VARCHAR, max_length=256)
            self._create(self.papers, schema, {"vector": ("FLAT", "IP", {})})
            self.write_state({"format": COLLECTION_FORMAT, "model": model, "time": ""})

    def _describe_equations(self, dimensions: int) -> tuple[Any, dict[str, tuple[str, str, Row]]]:
        """Return the schema and the indexes of the collection of equations."""
        kind = self._milvus.DataType
        schema = self._start_schema(dimensions)
        schema.add_field("terms", kind.SPARSE_FLOAT_VECTOR)
        schema.add_field(
            "words", kind.VARCHAR, max_length=MAX_TEXT_BYTES, enable_analyzer=True, analyzer_params=_ANALYZER
        )
        schema.add_field("bm25", kind.SPARSE_FLOAT_VECTOR)
        schema.add_function(
            self._milvus.Function(
                name="words_to_bm25",
                function_type=self._milvus.FunctionType.BM25,
                input_field_names=["words"],
                output_field_names=["bm25"],
            )
        )
        for name in ("paper", "number", "year"):
            schema.add_field(name, kind.INT64)
        names = {"element_type": kind.VARCHAR, "max_capacity": MAX_FIELDS, "max_length": MAX_FIELD_BYTES}
        schema.add_field("fields", kind.ARRAY, **names)
        for name in ("authors", "lang"):
            schema.add_field(name, kind.VARCHAR, max_length=MAX_TEXT_BYTES)
        indexes: dict[str, tuple[str, str, Row]] = {
            "vector": ("HNSW", "IP", {"M": 16, "efConstruction": 200}),
            "terms": ("SPARSE_INVERTED_INDEX", "IP", {}),
            "bm25": ("SPARSE_INVERTED_INDEX", "BM25", {}),
        }
        return schema, indexes

    def _start_schema(self, dimensions: int) -> Any:
        kind = self._milvus.DataType
        schema = self._milvus.MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("key", kind.INT64, is_primary=True)
        schema.add_field("vector", kind.FLOAT_VECTOR, dim=dimensions)
        schema.add_field("record", kind.VARCHAR, max_length=MAX_TEXT_BYTES)
        return schema

    def _create(self, name: str, schema: Any, indexes: dict[str, tuple[str, str, Row]]) -> None:
        described = self._milvus.MilvusClient.prepare_index_params()
        for field, (kind, metric, parameters) in indexes.items():
            described.add_index(field, index_name=field, index_type=kind, metric_type=metric, params=parameters)
        self.call("create_collection", name, schema=schema, index_params=described, consistency_level="Bounded")

    def fetch(self, where: str, keys: Iterable[int], fields: Iterable[str], *, strong: bool = False) -> dict[int, Row]:
        """Read rows of a collection by their keys; with `strong`, all that was written before is there."""
        wanted = list(keys)
        found: dict[int, Row] = {}
        for start in range(0, len(wanted), _KEYS_PER_CALL):
            rows = self.call(
                "query",
                where,
                filter=f"key in {format_list(wanted[start : start + _KEYS_PER_CALL])}",
                output_fields=["key", *fields],
                limit=_KEYS_PER_CALL,
                consistency_level="Strong" if strong else "Bounded",
            )
            found |= {row["key"]: row for row in rows}
        return found

    def scan(self, where: str, condition: str, fields: Iterable[str] = ()) -> Iterator[Row]:
        """Read all rows that meet a condition, as they are now."""
        found = self.call(
            "query_iterator",
            where,
            batch_size=_KEYS_PER_CALL,
            filter=condition,
            output_fields=["key", *fields],
            consistency_level="Strong",
        )
        with self._translating_errors():
            while rows := found.next():
                yield from rows

    def upsert(self, where: str, rows: list[Row]) -> None:
        """Write rows."""
        self.call("upsert", where, data=rows)

    def delete(self, where: str, keys: Iterable[int]) -> int:
        """Delete rows; return how many keys there were."""
        gone = list(keys)
        for start in range(0, len(gone), _KEYS_PER_CALL):
            self.call("delete", where, ids=gone[start : start + _KEYS_PER_CALL])
        return len(gone)


def _import_pymilvus() -> Any:
    """Import the client library with its log silenced; raises `BadInput` if it is not installed."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        import pymilvus
    except ImportError as error:
        raise BadInput("Milvus needs the extra: pip install 'eqkin[milvus]'") from error
    for name in ("pymilvus", "pymilvus.milvus_client"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return pymilvus


def parse_address(uri: str) -> tuple[str, str, str]:
    """Return an address as pymilvus takes it, as it may be shown (both without password), and `user:password`.

    Raises `BadInput`.
    """
    uri = uri.strip()
    if uri.endswith(".db") and "://" not in uri:
        return uri, uri, ""
    if re.fullmatch(r"[\w.-]+:\d+", uri):
        uri = f"http://{uri}"
    wrong = BadInput(
        f"{uri.rpartition('@')[2][:200]!r} is not an address of a Milvus server; http://localhost:19530 is one, "
        "https://user:password@host:19530 another, with %40 for @ and %2F for / in the password"
    )
    try:
        parts = urlsplit(uri)
        port = parts.port
    # Its message contains parts of the password.
    except ValueError:
        raise wrong from None
    if parts.scheme not in ("http", "https", "tcp") or not parts.hostname or "@" in parts.path + parts.query:
        raise wrong
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    shown = f"{parts.scheme}://{host}{f':{port}' if port else ''}{parts.path}"
    return shown, shown, unquote(parts.netloc.rpartition("@")[0])


def hash_name(name: str) -> int:
    """Return 63 bits of a name's hash; two of 30 million names share a key once in twenty thousand collections."""
    number = int.from_bytes(blake2b(name.encode(errors="surrogatepass"), digest_size=8).digest(), "big") >> 1
    return max(number, STATE_KEY + 1)


def pack_record(record: Row) -> str | None:
    """Return a record as text; None if it does not fit into a field."""
    packed = orjson.dumps(record)
    return packed.decode() if len(packed) <= MAX_TEXT_BYTES else None


def unpack_record(packed: str) -> Any:
    """Return the record that `pack_record` packed; raises `CorruptData`."""
    try:
        return orjson.loads(packed)
    except orjson.JSONDecodeError as error:
        raise CorruptData(f"a record in Milvus is damaged ({error}); push the library into another one") from error


def build_paper_row(key: int, record: str, content: str) -> Row:
    """Build a row of NAME_papers."""
    return {"key": key, "vector": [1.0, 0.0], "record": record, "content": content}


def format_list(numbers: Iterable[int]) -> str:
    """Format numbers as a list in an expression."""
    return f"[{', '.join(str(int(number)) for number in numbers)}]"
