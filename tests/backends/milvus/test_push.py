"""Pushing a library: what is there afterwards, however often, from wherever and however rudely interrupted."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from eqkin import Library
from eqkin.backends.milvus import documents, lease, open_backend
from eqkin.backends.milvus.connection import MilvusConnection
from eqkin.backends.milvus.keys import LEASE_KEY, hash_name
from eqkin.backends.milvus.lease import PushLease
from eqkin.backends.milvus.push import push_library
from eqkin.backends.milvus.rows import build_document_rows
from eqkin.errors import BadInput, LibraryBusy
from eqkin.search import SearchEngine
from tests.backends.milvus.conftest import paper

A = paper("a", r"E = m c^2", r"\oint_C f = 2\pi i", year=1990, fields=["physics"])
B = paper("b", r"a^2 + b^2 = c^2", fields=["geometry"])
C = paper("c", r"\sum_i x_i = 1", r"\int f = 0", r"y = x", year=2000, fields=["physics", "geometry"])

KILLED = """
import os, signal, sys
from eqkin import Library
from eqkin.backends.milvus import push as pushing
from eqkin.backends.milvus.connection import Connection
folder, uri, model, collection, left = sys.argv[1:]
pushing._BATCH, left, call = 2, int(left), Connection.call
def counted(self, method, *given, **named):
    global left
    found = call(self, method, *given, **named)
    left -= method in ("upsert", "delete")
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return found
Connection.call = counted
pushing.push(Library.open(folder), uri, model, collection)
"""


def _content(uri, collection):
    """All that a collection has, but for the time of its last push and its lease."""
    connection = MilvusConnection(uri)
    try:
        fields = ("paper", "number", "latex", "mathml", "year", "fields", "vector", "section", "before", "after")
        equations = list(documents.scan_rows(connection, collection, fields, rows=1_000))
        papers = list(
            documents.scan_rows(connection, f"{collection}_papers", ("content", "record", "parts"), rows=1_000)
        )
    finally:
        connection.close()
    assert len({row["key"] for row in equations}) == len(equations)
    return (
        sorted((row["key"], *(str(row[name]) for name in fields)) for row in equations),
        sorted((row["key"], row["content"], row["record"]) for row in papers if row["key"] > LEASE_KEY),
    )


def _ids(uri, collection):
    return {f"{row[1]}#{row[2]}" for row in _content(uri, collection)[0]}


def test_a_library_is_pushed_once_however_often_and_follows_its_changes(lite, filled, encoder, collection):
    library, other = filled(A, B), filled(C, name="other")

    def pushed(which, **options):
        report = push_library(which, lite.uri, encoder.digest, collection, **options)
        return report.papers, report.unchanged, report.equations, report.deleted, report.removed

    assert pushed(library) == (2, 0, 3, 0, 0)
    before = _content(lite.uri, collection)
    assert pushed(library) == (0, 2, 0, 0, 0)
    assert _content(lite.uri, collection) == before
    assert pushed(other) == (1, 0, 3, 0, 0)  # beside the others
    with SearchEngine(open_backend(lite.uri, collection, encoder.digest), encoder) as engine:
        assert engine.count_facets() == ({"physics": 5, "geometry": 4}, {1990: 2, 2000: 3})
    library = filled(A | {"latex": r"\section{Part} \[ E = m c^2 \]"}, B)
    assert pushed(library) == (1, 1, 1, 1, 0)
    expected = {"record:a#0", "record:b#0", "record:c#0", "record:c#1", "record:c#2"}
    assert _ids(lite.uri, collection) == expected
    library.remove("record:b")
    assert pushed(library) == (0, 1, 0, 0, 0)
    assert _ids(lite.uri, collection) == expected  # several libraries may be in one collection
    assert pushed(library, prune=True) == (0, 1, 0, 4, 2)
    assert _ids(lite.uri, collection) == {"record:a#0"}
    with SearchEngine(open_backend(lite.uri, collection, encoder.digest), encoder) as engine:
        assert engine.count_facets() == ({"physics": 1}, {1990: 1})
        assert not engine.has_paper("record:b")
        with pytest.raises(BadInput, match=r"record:c#0"):
            engine.get_equation("record:c#0")


def test_a_push_killed_anywhere_is_completed_by_the_next(lite, filled, encoder, collection):
    library = filled(A, B, C)
    push_library(library, lite.uri, encoder.digest, f"{collection}_whole")
    whole = _content(lite.uri, f"{collection}_whole")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", KILLED, library.folder, lite.uri, encoder.digest]
    killed = {  # the lease comes first; then, of each batch, what is begun, equations and papers
        f"{collection}_{writes}": subprocess.Popen([*command, f"{collection}_{writes}", str(writes)], env=environment)
        for writes in (2, 3, 4)
    }
    for name, process in killed.items():
        assert process.wait(120) == -signal.SIGKILL
        push_library(library, lite.uri, encoder.digest, name)
        assert _content(lite.uri, name) == whole


def test_what_a_killed_push_left_of_a_paper_that_changed_goes(lite, filled, encoder, collection):
    library = filled(C)
    push_library(library, lite.uri, encoder.digest, collection)
    connection = MilvusConnection(lite.uri)
    connection.call("delete", f"{collection}_papers", filter="equations >= 0")  # as if killed before the paper's row
    connection.close()
    library = filled(C | {"latex": r"\section{Part} \[ y = x \]"})
    report = push_library(library, lite.uri, encoder.digest, collection)
    assert (report.papers, report.equations, report.deleted) == (1, 1, 2)
    assert _ids(lite.uri, collection) == {"record:c#0"}


def test_a_second_push_is_refused_and_told_who_is_at_work(lite, filled, encoder, collection):
    library = filled(A)
    push_library(library, lite.uri, encoder.digest, collection)
    connection = MilvusConnection(lite.uri)
    with PushLease(connection, collection):
        with pytest.raises(LibraryBusy, match=f"process {os.getpid()} on {socket.gethostname()}"):
            push_library(library, lite.uri, encoder.digest, collection)
    assert push_library(library, lite.uri, encoder.digest, collection).unchanged == 1
    connection.close()


def test_two_pushes_at_the_same_instant_end_with_everything_once(lite, filled, encoder, collection):
    records = [paper(f"p{i}", rf"x_{{{i}}} = y^{i}", rf"a_{{{i}}} < b") for i in range(6)]
    library = filled(*records)
    push_library(filled(name="empty"), lite.uri, encoder.digest, collection)
    ends, start = [], threading.Barrier(2)

    def one():
        with Library.open(library.folder, create=False) as opened:
            start.wait()
            try:
                ends.append(push_library(opened, lite.uri, encoder.digest, collection).papers)
            except LibraryBusy as error:
                ends.append(str(error))

    threads = [threading.Thread(target=one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    refused = [end for end in ends if isinstance(end, str)]
    assert len(refused) == 1 and "another push" in refused[0]
    assert len(_ids(lite.uri, collection)) == 12


def test_a_lease_nobody_renews_is_over(lite, filled, encoder, collection):
    library = filled(A)
    push_library(library, lite.uri, encoder.digest, collection)
    connection = MilvusConnection(lite.uri)
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    here, gone, now = socket.gethostname(), int(ended.stdout), time.time()
    for holder, free in (
        ({"token": "x", "host": here, "process": gone, "time": now}, True),
        ({"token": "x", "host": "elsewhere", "process": gone, "time": now}, False),
        ({"token": "x", "host": "elsewhere", "process": gone, "time": now - lease.LEASE_SECONDS - 1}, True),
        ({"token": "x", "host": here, "process": os.getpid(), "time": now}, False),
    ):
        documents.write_record(connection, collection, LEASE_KEY, holder)
        if free:
            assert push_library(library, lite.uri, encoder.digest, collection).unchanged == 1
        else:
            with pytest.raises(LibraryBusy):
                push_library(library, lite.uri, encoder.digest, collection)
    connection.close()


def test_a_push_that_lost_its_lease_stops(lite, filled, encoder, collection, monkeypatch):
    push_library(filled(A), lite.uri, encoder.digest, collection)
    connection = MilvusConnection(lite.uri)
    monkeypatch.setattr(lease, "_RENEW_SECONDS", -1.0)

    def taken(report):
        documents.write_record(
            connection, collection, LEASE_KEY, {"token": "x", "host": "elsewhere", "process": 7, "time": 0}
        )

    with pytest.raises(LibraryBusy, match="process 7 on elsewhere"):
        push_library(filled(A, B, C), lite.uri, encoder.digest, collection, progress=taken)
    assert documents.read_record(connection, collection, LEASE_KEY)["process"] == 7  # it is theirs
    connection.close()


def test_a_collection_of_another_model_is_refused(lite, filled, encoder, collection):
    library = filled(A)
    push_library(library, lite.uri, encoder.digest, collection)
    with pytest.raises(BadInput, match="of the model") as caught:
        open_backend(lite.uri, collection, "feed" * 16)
    assert encoder.digest in str(caught.value) and "feed" * 16 in str(caught.value)
    with pytest.raises(BadInput, match="eqkin index"):
        push_library(library, lite.uri, "feed" * 16, collection)
    state = library.folder / "index" / "index.json"
    kept = state.read_bytes()
    _relabel(library, "feed" * 16)
    try:
        with pytest.raises(BadInput, match=f"of the model {encoder.digest}.*--collection"):
            push_library(library, lite.uri, "feed" * 16, collection)
    finally:
        state.write_bytes(kept)
    assert len(_ids(lite.uri, collection)) == 2


def _relabel(library, model):
    """Say that a library's vectors are of another model."""
    from dataclasses import replace

    from eqkin.index.state import IndexManifest

    folder = library.folder / "index"
    replace(IndexManifest.load(folder), model=model).save(folder)


def test_a_foreign_collection_and_a_missing_one_are_refused(lite, filled, encoder, collection):
    connection = MilvusConnection(lite.uri)
    from eqkin.backends.milvus.schema import prepare_judgements

    prepare_judgements(connection, collection)
    connection.close()
    with pytest.raises(BadInput, match="not eqkin's"):
        push_library(filled(A), lite.uri, encoder.digest, collection)
    with pytest.raises(BadInput, match="eqkin push"):
        open_backend(lite.uri, f"{collection}_no", encoder.digest)
    for name in ("", "1a", "a-b", "a b", "x" * 300, 'a"; drop'):
        with pytest.raises(BadInput, match="name"):
            open_backend(lite.uri, name, encoder.digest)


def test_equations_without_vectors_are_counted_and_come_later(lite, filled, encoder, collection):
    with pytest.raises(BadInput, match="eqkin index"):
        push_library(filled(A, index=False), lite.uri, encoder.digest, collection)
    push_library(filled(A), lite.uri, encoder.digest, collection)
    library = filled(A, C, index=False)
    report = push_library(library, lite.uri, encoder.digest, collection)
    assert (report.papers, report.equations, report.missing) == (1, 0, 3)
    with SearchEngine(open_backend(lite.uri, collection, encoder.digest), encoder) as engine:
        assert engine.search("x").missing == 3
        ((_, equations),) = engine.get_paper("record:c").sections
        assert [equation.tree for equation in equations] == [-1, -1, -1] and equations[0].mathml
        with pytest.raises(BadInput):
            engine.find_similar("record:c#0")
    report = push_library(filled(A, C), lite.uri, encoder.digest, collection)
    assert (report.papers, report.equations, report.missing) == (1, 3, 0)
    assert len(_ids(lite.uri, collection)) == 5


def _noise(seed=1):
    """A text that does not fit into one row, packed or not."""
    return "".join(map(chr, np.random.default_rng(seed).integers(0x4E00, 0x9000, 60_000)))


def test_what_a_killed_push_left_of_a_paper_that_was_removed_goes(lite, filled, encoder, collection):
    library = filled(A | {"abstract": _noise()})
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", KILLED, library.folder, lite.uri, encoder.digest, collection, "3"]
    assert subprocess.run(command, env=environment, timeout=120).returncode == -signal.SIGKILL
    equations, papers = _content(lite.uri, collection)
    assert len(equations) == 2 and len(papers) == 1 + 2  # what is begun, parts of the record
    report = push_library(filled(B), lite.uri, encoder.digest, collection, prune=True)
    assert (report.papers, report.collection) == (1, 1)
    assert _ids(lite.uri, collection) == {"record:b#0"} and len(_content(lite.uri, collection)[1]) == 1


def test_a_record_that_is_being_written_is_left_out(lite, filled, encoder, collection):
    library = filled(A | {"abstract": _noise(1)}, B)
    push_library(library, lite.uri, encoder.digest, collection)
    key, connection = hash_name("record:a"), MilvusConnection(lite.uri)
    before = documents.read_record(connection, collection, key)
    rows = build_document_rows(key, before | {"abstract": _noise(2)}, "other", {"paper": "record:a", "equations": 2})
    connection.call("upsert", f"{collection}_papers", data=rows[:1])
    assert documents.read_record(connection, collection, key) is None
    with SearchEngine(open_backend(lite.uri, collection, encoder.digest), encoder) as engine:
        assert {hit.equation.paper.key for hit in engine.search("E = m c^2").hits} == {"record:b"}
    connection.call("upsert", f"{collection}_papers", data=rows[1:])
    assert documents.read_record(connection, collection, key)["abstract"] == _noise(2)
    assert len(_content(lite.uri, collection)[1]) == len(rows) + 1
    assert push_library(filled(A, B), lite.uri, encoder.digest, collection).papers == 1
    assert len(_content(lite.uri, collection)[1]) == 2  # a shorter record leaves no parts of the longer one
    connection.close()


def test_what_is_too_long_for_a_row_is_packed(lite, filled, encoder, collection):
    long = rf"\mathrm{{{'+'.join(f'x_{{{i}}}' for i in range(1_000_000, 1_000_950))}}}"
    abstract = _noise()
    unread = r"\begin{nope} x \end{nope}"
    library = filled(paper("long", long, unread, abstract=abstract, label="x"))
    report = push_library(library, lite.uri, encoder.digest, collection)
    assert (report.equations, report.oversized) == (1, [])
    with SearchEngine(library, encoder) as local:
        page = local.get_paper("record:long")
        assert len(page.sections[0][1][0].mathml) > 65_535
        with SearchEngine(open_backend(lite.uri, collection, encoder.digest), encoder) as engine:
            found = engine.get_paper("record:long")
            assert found.abstract == page.abstract == abstract
            assert [e.mathml for e in found.sections[0][1]] == [e.mathml for e in page.sections[0][1]]
            assert engine.search(long).hits[0].score == pytest.approx(1)
            with pytest.raises(BadInput, match="could not be read"):
                engine.find_similar("record:long#1")
    assert push_library(filled(A), lite.uri, encoder.digest, collection, prune=True).removed == 1
    assert len(_content(lite.uri, collection)[1]) == 1  # no part of it is left
