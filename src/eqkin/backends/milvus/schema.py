"""The collections that hold a library: their fields and indexes, how they are made, and whose they are.

    NAME             a row for each equation: its vector, terms and words, and what is shown of it
    NAME_papers      a row for each paper, written after its equations: that it is there says that the paper is complete
    NAME_judgements  what people said of results; made with the first of them

A collection remembers the model its vectors are of, and how it was made; another model's is refused.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from eqkin.backends.milvus.connection import WRITE_SECONDS, MilvusConnection, NoSuchCollection, import_pymilvus
from eqkin.backends.milvus.expressions import MAX_FIELD_BYTES
from eqkin.errors import BadInput, CorruptData, StorageFailed
from eqkin.index.structure_files import TERM_SCHEME

COLLECTION_FORMAT = 1
DEFAULT_COLLECTION = "eqkin"
MAX_TEXT_BYTES = 65_535  # the most that a text may have in Milvus
MAX_FIELDS = 256  # of one paper that are kept beside its equations
_COLLECTION_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
_PROPERTY = "eqkin"  # the property that says whose a collection is, where its description does not
_HNSW = {"M": 16, "efConstruction": 200}


@dataclass(frozen=True)
class ServerFeatures:
    """What a server can do."""

    version: str
    terms: bool  # vectors of few numbers that are not 0: from 2.4 on
    words: bool  # full text search: from 2.5 on
    parts: bool  # texts that contain another: from 2.4 on

    @classmethod
    def detect(cls, connection: MilvusConnection) -> ServerFeatures:
        """Those of a server, by its version."""
        version = connection.version
        numbers = re.search(r"(\d+)\.(\d+)", version)
        number = (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)
        return cls(version, number >= (2, 4), number >= (2, 5), number >= (2, 4))


@dataclass(frozen=True)
class CollectionInfo:
    """How a collection of equations was made."""

    model: str  # digest of the network
    dimensions: int
    terms: int  # how terms are counted, `structure_files.SCHEME`; 0: it has none
    words: bool  # whether it has words
    server: str  # the version of the server that made it
    format: int = COLLECTION_FORMAT


def name_papers_collection(name: str) -> str:
    """The collection of papers that belongs to one of equations."""
    return f"{name}_papers"


def check_name(name: str) -> str:
    """The name of a collection; raises `BadInput` if Milvus allows no such name."""
    if not _COLLECTION_NAME.fullmatch(name):
        raise BadInput(f"{name[:80]!r} is no name of a collection: letters, digits and _ are allowed, a letter first")
    return name


def read_info(connection: MilvusConnection, name: str) -> CollectionInfo:
    """How a collection of equations was made.

    Raises:
        NoSuchCollection: there is none.
        BadInput: it was not made by eqkin.
        CorruptData: it was made by another version.
    """
    told = connection.call("describe_collection", name)
    mark = told.get("properties", {}).get(_PROPERTY) or told.get("description", "")
    try:
        data = json.loads(mark)
        number = data["format"]
        if number == COLLECTION_FORMAT:
            return CollectionInfo(**data)
    except (ValueError, TypeError, KeyError) as error:
        raise BadInput(
            f"{connection.shown}: the collection {name} is not eqkin's; choose another one with --collection"
        ) from error
    raise CorruptData(
        f"{connection.shown}: the collection {name} is of format {number}, this eqkin reads {COLLECTION_FORMAT}; "
        "push the library into another one with --collection"
    )


def check_model(connection: MilvusConnection, name: str, origin: CollectionInfo, model: str) -> None:
    """Raises `BadInput` if a collection's vectors are of another model than queries are."""
    if origin.model != model:
        raise BadInput(
            f"{connection.shown}: the collection {name} has vectors of the model {origin.model}, not of {model}; "
            "choose another collection with --collection, or search with that network"
        )


def prepare_collections(connection: MilvusConnection, name: str, model: str, dimensions: int) -> CollectionInfo:
    """Make the collections of a library, as far as they are not there; goes on where it was interrupted.

    Raises:
        BadInput: there is a collection of another model, or one that is not eqkin's.
    """
    try:
        origin = read_info(connection, name)
    except NoSuchCollection:
        able = ServerFeatures.detect(connection)
        origin = CollectionInfo(model, dimensions, TERM_SCHEME if able.terms else 0, able.words, able.version)
        _create_collection(connection, name, _build_equation_schema(origin), _build_properties(origin))
    check_model(connection, name, origin, model)
    if origin.terms not in (0, TERM_SCHEME):
        raise CorruptData(
            f"{connection.shown}: the collection {name} was made by an eqkin that counts terms in another way; "
            "push the library into another one with --collection"
        )
    _create_collection(connection, name_papers_collection(name), _build_paper_schema(origin), {})
    _create_indexes(connection, name, _choose_indexes(origin))
    _create_indexes(connection, name_papers_collection(name), {"vector": ("FLAT", "IP", {})})
    return origin


def prepare_judgements(connection: MilvusConnection, name: str) -> None:
    """Make the collection of judgements, if it is not there."""
    _create_collection(connection, name, _build_judgement_schema(), {})
    _create_indexes(connection, name, {"vector": ("FLAT", "IP", {})})


def _serialise_info(origin: CollectionInfo) -> str:
    return json.dumps(vars(origin), sort_keys=True)


def _build_properties(origin: CollectionInfo) -> dict[str, str]:
    """What Milvus Lite is told as a property, since it keeps no descriptions."""
    return {_PROPERTY: _serialise_info(origin)} if origin.server.startswith("milvus_lite") else {}


def _create_collection(connection: MilvusConnection, name: str, schema: Any, properties: dict[str, str]) -> None:
    if connection.call("has_collection", name):
        return
    other = {"properties": properties} if properties else {}
    try:
        connection.call(
            "create_collection", name, seconds=WRITE_SECONDS, schema=schema, consistency_level="Bounded", **other
        )
    except StorageFailed:
        if not connection.call("has_collection", name):  # otherwise somebody else was faster
            raise


def _create_indexes(
    connection: MilvusConnection, name: str, wanted: dict[str, tuple[str, str, dict[str, Any]]]
) -> None:
    there = set(connection.call("list_indexes", name))
    for field, (kind, metric, parameters) in wanted.items():
        if field not in there:
            prepared = import_pymilvus().MilvusClient.prepare_index_params()
            prepared.add_index(field, index_name=field, index_type=kind, metric_type=metric, params=parameters)
            connection.call("create_index", name, seconds=WRITE_SECONDS, index_params=prepared)
    connection.load(name, WRITE_SECONDS)


def _choose_indexes(origin: CollectionInfo) -> dict[str, tuple[str, str, dict[str, Any]]]:
    found: dict[str, tuple[str, str, dict[str, Any]]] = {"vector": ("HNSW", "IP", _HNSW)}
    if origin.terms:
        found["terms"] = ("SPARSE_INVERTED_INDEX", "IP", {})
    if origin.words:
        found["bm25"] = ("SPARSE_INVERTED_INDEX", "BM25", {})
    return found


def _build_equation_schema(origin: CollectionInfo) -> Any:
    module = import_pymilvus()
    kind, schema = module.DataType, _start_schema(_serialise_info(origin))
    schema.add_field("vector", kind.FLOAT_VECTOR, dim=origin.dimensions)
    if origin.terms:
        schema.add_field("terms", kind.SPARSE_FLOAT_VECTOR)
    if origin.words:
        schema.add_field("words", kind.VARCHAR, max_length=MAX_TEXT_BYTES, enable_analyzer=True, **_map_to_disk(origin))
        schema.add_field("bm25", kind.SPARSE_FLOAT_VECTOR)
        schema.add_function(
            module.Function(
                name="words_to_bm25",
                function_type=module.FunctionType.BM25,
                input_field_names=["words"],
                output_field_names=["bm25"],
            )
        )
    for name in ("latex", "mathml", "label", "section", "before", "after"):
        schema.add_field(name, kind.VARCHAR, max_length=MAX_TEXT_BYTES, **_map_to_disk(origin))
    for name in ("paper", "authors"):
        schema.add_field(name, kind.VARCHAR, max_length=MAX_TEXT_BYTES)
    for name in ("paper_key", "number", "year"):
        schema.add_field(name, kind.INT64)
    _add_subject_fields(schema)
    return schema


def _build_paper_schema(origin: CollectionInfo) -> Any:
    kind, schema = import_pymilvus().DataType, _start_schema()
    schema.add_field("vector", kind.FLOAT_VECTOR, dim=2)  # Milvus wants one
    schema.add_field("paper", kind.VARCHAR, max_length=MAX_TEXT_BYTES)
    schema.add_field("content", kind.VARCHAR, max_length=256)  # what was pushed: another one is pushed again
    schema.add_field("record", kind.VARCHAR, max_length=MAX_TEXT_BYTES, **_map_to_disk(origin))
    for name in ("parts", "equations", "missing", "year"):
        schema.add_field(name, kind.INT64)
    _add_subject_fields(schema)
    return schema


def _map_to_disk(origin: CollectionInfo) -> dict[str, bool]:
    """What makes a server map texts that only hits need into its memory, instead of loading all of them."""
    return {"mmap_enabled": True} if origin.words else {}  # a field of its own can have that from about 2.5 on


def _build_judgement_schema() -> Any:
    kind, schema = import_pymilvus().DataType, _start_schema()
    schema.add_field("vector", kind.FLOAT_VECTOR, dim=2)
    schema.add_field("time", kind.VARCHAR, max_length=64)
    schema.add_field("record", kind.VARCHAR, max_length=MAX_TEXT_BYTES)
    return schema


def _start_schema(description: str = "") -> Any:
    module = import_pymilvus()
    schema = module.MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False, description=description)
    schema.add_field("key", module.DataType.INT64, is_primary=True)
    return schema


def _add_subject_fields(schema: Any) -> None:
    kind = import_pymilvus().DataType
    schema.add_field(
        "fields", kind.ARRAY, element_type=kind.VARCHAR, max_capacity=MAX_FIELDS, max_length=MAX_FIELD_BYTES
    )
