"""Pushing a library: repeated, from several libraries, at the same time, and after being killed."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest

from eqkin import Library
from eqkin.cluster.milvus.collection import LEASE_KEY, MilvusCollection, hash_name, unpack_record
from eqkin.cluster.milvus.connection import MilvusConnection
from eqkin.cluster.milvus.push import SETTINGS, PushLease, PushSettings, push_library
from eqkin.cluster.milvus.snapshot import open_backend
from eqkin.errors import BadInput, LibraryBusy
from eqkin.search import SearchEngine
from tests.cluster.milvus.conftest import paper

A = paper("a", r"E = m c^2", r"\oint_C f = 2\pi i", year=1990, fields=["physics"])
B = paper("b", r"a^2 + b^2 = c^2", fields=["geometry"])
C = paper("c", r"\sum_i x_i = 1", r"\int f = 0", r"y = x", year=2000, fields=["physics", "geometry"])

KILLED = """
import os, signal, sys
from eqkin.cluster.milvus.connection import MilvusConnection
from eqkin.cluster.milvus.push import PushSettings, push_library
from eqkin.library.files import LibraryFiles
folder, uri, model, collection, left = sys.argv[1:]
left, call = int(left), MilvusConnection.call
def count(self, method, *given, **named):
    global left
    found = call(self, method, *given, **named)
    left -= method in ("upsert", "delete")
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return found
MilvusConnection.call = count
push_library(LibraryFiles.open(folder), uri, model, collection, settings=PushSettings(equations_per_batch=2))
"""


@contextmanager
def _open(uri, collection):
    connection = MilvusConnection(uri)
    yield MilvusCollection(connection, collection)
    connection.close()


def _read_content(uri, collection):
    """Return all that a collection has, except its summary, with the time of its last push, and its lease."""
    with _open(uri, collection) as opened:
        fields = ("record", "paper_key", "year", "fields", "vector")
        equations = list(opened.scan(opened.name, fields, rows=1_000))
        papers = list(opened.scan(opened.papers, ("content", "record", "equations"), rows=1_000))
    assert len({row["key"] for row in equations}) == len(equations)
    return (
        sorted((row["key"], *(str(row[name]) for name in fields)) for row in equations),
        sorted((row["key"], row["content"], row["record"]) for row in papers if row["key"] > LEASE_KEY),
    )


def _ids(uri, collection):
    records = [unpack_record(row[1]) for row in _read_content(uri, collection)[0]]
    return {f"{record['paper']}#{record['number']}" for record in records}


def test_push_is_idempotent_and_follows_changes(lite, filled, encoder, collection):
    library, other = filled(A, B), filled(C, name="other")

    def pushed(which, **options):
        report = push_library(which, lite.uri, encoder.digest, collection, **options)
        return report.papers, report.unchanged, report.equations, report.deleted, report.removed

    assert pushed(library) == (2, 0, 3, 0, 0)
    before = _read_content(lite.uri, collection)
    assert pushed(library) == (0, 2, 0, 0, 0)
    assert _read_content(lite.uri, collection) == before
    assert pushed(other) == (1, 0, 3, 0, 0)  # added to the others
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


def test_push_completes_one_that_was_killed(lite, filled, encoder, collection):
    library = filled(A, B, C)
    push_library(library, lite.uri, encoder.digest, f"{collection}_whole")
    whole = _read_content(lite.uri, f"{collection}_whole")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", KILLED, library.folder, lite.uri, encoder.digest]
    killed = {  # the lease comes first; then, of each batch, what is pending, equations and papers
        f"{collection}_{writes}": subprocess.Popen([*command, f"{collection}_{writes}", str(writes)], env=environment)
        for writes in (2, 3, 4)
    }
    for name, process in killed.items():
        assert process.wait(120) == -signal.SIGKILL
        push_library(library, lite.uri, encoder.digest, name)
        assert _read_content(lite.uri, name) == whole


def test_push_deletes_what_a_killed_one_left_of_a_changed_paper(lite, filled, encoder, collection):
    library = filled(C)
    push_library(library, lite.uri, encoder.digest, collection)
    connection = MilvusConnection(lite.uri)
    connection.call("delete", f"{collection}_papers", filter="equations >= 0")  # as if killed before the paper's row
    connection.close()
    library = filled(C | {"latex": r"\section{Part} \[ y = x \]"})
    report = push_library(library, lite.uri, encoder.digest, collection)
    assert (report.papers, report.equations, report.deleted) == (1, 1, 2)
    assert _ids(lite.uri, collection) == {"record:c#0"}


def test_second_push_is_refused_and_names_the_first(lite, filled, encoder, collection):
    library = filled(A)
    push_library(library, lite.uri, encoder.digest, collection)
    with _open(lite.uri, collection) as opened, PushLease(opened):
        with pytest.raises(LibraryBusy, match=f"process {os.getpid()} on {socket.gethostname()}"):
            push_library(library, lite.uri, encoder.digest, collection)
    assert push_library(library, lite.uri, encoder.digest, collection).unchanged == 1


def test_of_two_simultaneous_pushes_one_is_refused(lite, filled, encoder, collection):
    records = [paper(f"p{i}", rf"x_{{{i}}} = y^{i}", rf"a_{{{i}}} < b") for i in range(6)]
    library = filled(*records)
    push_library(filled(name="empty"), lite.uri, encoder.digest, collection)
    ends, start = [], threading.Barrier(2)

    def one():
        with Library.open(library.folder) as opened:
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


def test_lease_that_is_not_renewed_expires(lite, filled, encoder, collection):
    library = filled(A)
    push_library(library, lite.uri, encoder.digest, collection)
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    here, gone, now = socket.gethostname(), int(ended.stdout), time.time()
    for holder, free in (
        ({"token": "x", "host": here, "process": gone, "time": now}, True),
        ({"token": "x", "host": "elsewhere", "process": gone, "time": now}, False),
        ({"token": "x", "host": "elsewhere", "process": gone, "time": now - SETTINGS.lease_seconds - 1}, True),
        ({"token": "x", "host": here, "process": os.getpid(), "time": now}, False),
    ):
        with _open(lite.uri, collection) as opened:
            opened.write_record(LEASE_KEY, holder)
        if free:
            assert push_library(library, lite.uri, encoder.digest, collection).unchanged == 1
        else:
            with pytest.raises(LibraryBusy):
                push_library(library, lite.uri, encoder.digest, collection)


def test_push_that_lost_its_lease_stops(lite, filled, encoder, collection):
    push_library(filled(A), lite.uri, encoder.digest, collection)
    always = PushSettings(renew_seconds=-1.0)
    with _open(lite.uri, collection) as opened:

        def take_over(report):
            opened.write_record(LEASE_KEY, {"token": "x", "host": "elsewhere", "process": 7, "time": 0})

        with pytest.raises(LibraryBusy, match="process 7 on elsewhere"):
            push_library(filled(A, B, C), lite.uri, encoder.digest, collection, progress=take_over, settings=always)
        assert opened.read_record(LEASE_KEY)["process"] == 7  # the lease of the other push stays


def test_collection_of_another_model_is_refused(lite, filled, encoder, collection):
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
    """Change the model that a library's vectors are said to be of."""
    from dataclasses import replace

    from eqkin.index.manifest import IndexManifest

    folder = library.folder / "index"
    replace(IndexManifest.load(folder), model=model).save(folder)


def test_foreign_and_missing_collections_and_invalid_names_are_refused(lite, filled, encoder, collection):
    with _open(lite.uri, collection) as opened:
        opened.prepare(encoder.digest, 4)
        with pytest.raises(BadInput, match="not made by eqkin"):
            push_library(filled(A), lite.uri, encoder.digest, opened.papers)
        with pytest.raises(BadInput, match="eqkin push"):
            open_backend(lite.uri, f"{collection}_no", encoder.digest)
    for name in ("", "1a", "a-b", "a b", "x" * 300, 'a"; drop'):
        with pytest.raises(BadInput, match="name"):
            open_backend(lite.uri, name, encoder.digest)


def test_push_counts_equations_without_vectors_and_adds_them_later(lite, filled, encoder, collection):
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


def _make_noise(seed=1):
    """Return a text that does not fit into a row, packed or not."""
    return "".join(map(chr, np.random.default_rng(seed).integers(0x4E00, 0x9000, 60_000)))


def test_push_deletes_what_a_killed_one_left_of_a_removed_paper(lite, filled, encoder, collection):
    unread = r"\begin{nope} x \end{nope}"
    library = filled(paper("a", r"E = m c^2", unread, r"\oint_C f = 2\pi i"))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", KILLED, library.folder, lite.uri, encoder.digest, collection, "3"]
    assert subprocess.run(command, env=environment, timeout=120).returncode == -signal.SIGKILL
    equations, papers = _read_content(lite.uri, collection)
    assert len(equations) == 2 and len(papers) == 1 + 1  # what is pending, the equation that could not be read
    report = push_library(filled(B), lite.uri, encoder.digest, collection, prune=True)
    assert (report.papers, report.collection) == (1, 1)
    assert _ids(lite.uri, collection) == {"record:b#0"} and len(_read_content(lite.uri, collection)[1]) == 1


def test_equations_of_a_paper_without_a_row_are_not_shown(lite, filled, encoder, collection):
    push_library(filled(A, B), lite.uri, encoder.digest, collection)
    with _open(lite.uri, collection) as opened:
        opened.delete(opened.papers, [hash_name("record:a")])  # as while the paper is pushed
    with SearchEngine(open_backend(lite.uri, collection, encoder.digest), encoder) as engine:
        assert {hit.equation.paper.key for hit in engine.search("E = m c^2").hits} == {"record:b"}
        with pytest.raises(BadInput):
            engine.get_paper("record:a")


def test_long_texts_fit_into_a_row_and_pages_show_what_could_not_be_read(lite, filled, encoder, collection):
    long = rf"\mathrm{{{'+'.join(f'x_{{{i}}}' for i in range(1_000_000, 1_000_950))}}}"
    unread = r"\begin{nope} x \end{nope}"
    library = filled(paper("long", long, unread, abstract="Many words. " * 10_000))
    report = push_library(library, lite.uri, encoder.digest, collection)
    assert (report.equations, report.oversized) == (1, [])
    with SearchEngine(library, encoder) as local:
        page = local.get_paper("record:long")
        assert len(page.sections[0][1][0].mathml) > 65_535
        with SearchEngine(open_backend(lite.uri, collection, encoder.digest), encoder) as engine:
            found = engine.get_paper("record:long")
            assert found.abstract == page.abstract
            assert [(e.latex, e.mathml) for e in found.sections[0][1]] == [
                (e.latex, e.mathml) for e in page.sections[0][1]
            ]
            assert engine.search(long).hits[0].score == pytest.approx(1)
            assert engine.get_equation("record:long#1").tree == -1
            with pytest.raises(BadInput, match="could not be read"):
                engine.find_similar("record:long#1")
    assert push_library(filled(A), lite.uri, encoder.digest, collection, prune=True).removed == 1
    assert len(_read_content(lite.uri, collection)[1]) == 1  # no row of it is left


def test_abstract_that_does_not_fit_is_truncated(lite, filled, encoder, collection):
    library = filled(A | {"abstract": _make_noise()})
    push_library(library, lite.uri, encoder.digest, collection)
    with SearchEngine(open_backend(lite.uri, collection, encoder.digest), encoder) as engine:
        page = engine.get_paper("record:a")
        assert 1_000 < len(page.abstract) < 60_000 and _make_noise().startswith(page.abstract)
        assert page.paper.title == "About a" and len(page.sections[0][1]) == 2
