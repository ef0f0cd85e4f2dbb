"""Terms of a library's equations: a search finds what counting tree by tree finds."""

import json
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from eqkin.api import Library, verify
from eqkin.encoder.encoder import Encoder
from eqkin.errors import BadInput, CorruptData
from eqkin.formulas import ForestBuilder
from eqkin.formulas.engine import parse_operators
from eqkin.formulas.forest import from_bytes, to_bytes
from eqkin.formulas.mathml import parse_mathml, to_forest
from eqkin.formulas.operators import OperatorForest
from eqkin.formulas.terms import COMPARED_FAMILIES
from eqkin.index.embedding import TreeTask
from eqkin.index.manifest import INDEX_MANIFEST_NAME, IndexManifest, IndexSettings, TermsEntry
from eqkin.index.reader import VectorIndex
from eqkin.index.term_segments import (
    Structure,
    TermCodec,
    count_unparsed,
    extract_structure,
    open_segment,
    write_segment,
)
from eqkin.index.terms import TermIndex, limit_postings
from eqkin.index.update import update_index
from eqkin.library.queries import list_tree_ids
from eqkin.library.references import read_columns
from eqkin.storage.files import format_checked_json
from tests.index.conftest import write_note


def _terms(library: Library) -> Iterator[tuple[int, np.ndarray]]:
    """The terms of each tree that should be indexed."""
    for numbers, forest, _ in library.iter_trees(library.list_tree_keys()):
        yield from zip(numbers.tolist(), _extract_codes(to_bytes(forest)), strict=True)


@cache
def _extract_codes(forest: bytes) -> list[np.ndarray]:
    trees = from_bytes(forest)
    terms = extract_structure(TreeTask(np.arange(len(trees)), trees))[1]
    codes = terms.codes & np.uint32((1 << 26) - 1)  # what is stored of them
    return [np.unique(codes[terms.owners == tree]) for tree in range(len(trees))]


def _lists(library: Library) -> dict[int, set[int]]:
    trees = defaultdict(set)
    for number, codes in _terms(library):
        for code in codes.tolist():
            trees[code].add(number)
    return trees


def _by_hand(lists: dict[int, set[int]], codes: np.ndarray, weights: np.ndarray) -> list[tuple[float, int]]:
    scores: dict[int, float] = defaultdict(float)
    for code, weight in zip(codes.tolist(), weights.tolist(), strict=True):
        for tree in lists.get(code, ()):
            scores[tree] += weight
    return sorted(((score, tree) for tree, score in scores.items()), key=lambda hit: (-hit[0], hit[1]))


def _opened(library: Library, encoder: Encoder) -> TermIndex:
    found = VectorIndex.open(library, encoder.digest).terms
    assert found is not None
    return found


def _state(library: Library) -> IndexManifest:
    state = IndexManifest.load(library.folder / "index")
    assert state is not None
    return state


def _check(library: Library, encoder: Encoder) -> TermIndex:
    """An index of structure that finds what is in the library, and nothing else."""
    index, lists = _opened(library, encoder), _lists(library)
    terms = dict(_terms(library))
    assert (index.trees.tolist(), index.missing) == (sorted(terms), 0)
    codes = np.array(sorted(lists), np.uint32)
    if index.count == len(index):
        assert index.count_frequencies(codes).tolist() == [len(lists[code]) for code in codes.tolist()]
    chance = np.random.default_rng(5)
    for tree in chance.permutation(sorted(terms))[:20].tolist():
        asked = np.append(terms[tree], np.uint32(12345))
        weights = chance.integers(0, 4, len(asked)).astype(np.float32)  # whole numbers: sums are exact, ties are many
        right = [hit for hit in _by_hand(lists, asked, weights) if hit[0] > 0]
        for k in (1, 7, 10_000):
            scores, trees = index.search(asked, weights, k, max_postings=10**6)
            assert list(zip(scores.tolist(), trees.tolist(), strict=True)) == right[:k]
    verdict = verify(library.folder)
    assert not verdict.problems + verdict.notes
    return index


def test_search_finds_equations_by_their_terms(atlas: Library, encoder: Encoder) -> None:
    index = _check(atlas, encoder)
    assert index.count == len(index) == len(VectorIndex.open(atlas, encoder.digest))
    terms = dict(_terms(atlas))
    tree = max(terms, key=lambda number: len(terms[number]))
    scores, trees = index.search(terms[tree], np.ones(len(terms[tree]), np.float32), 3, max_postings=10**6)
    assert (trees[0], scores[0]) == (tree, len(terms[tree]))
    assert (scores.dtype, trees.dtype) == (np.float32, np.int64)


def test_segments_of_terms_are_written_and_merged(library: Library, encoder: Encoder, notes: Path) -> None:
    small = IndexSettings(max_segments=4, step_trees=4, max_segment_trees=8)
    counts = []
    assert update_index(library, encoder, settings=small).structured == 15
    for number in range(10, 16):
        counts.append(len(_state(library).terms or ()))
        _check(library, encoder)
        library.add(write_note(notes, number, 3))
        assert update_index(library, encoder, settings=small).structured == 3
    assert counts[0] == 2  # 8 and 7 trees
    assert max(counts) > 2
    assert counts[-1] < 2 + len(counts) - 1  # some were merged
    before = _state(library)
    assert update_index(library, encoder, settings=small).structured == 0
    assert _state(library) == before


def test_term_search_does_not_find_removed_and_changed_equations(
    library: Library, encoder: Encoder, notes: Path
) -> None:
    update_index(library, encoder)
    old = dict(_terms(library))
    library.remove(str(notes / "n1.md"))
    library.add(write_note(notes, 2, 7))
    index = _opened(library, encoder)
    assert (len(index), index.count, index.missing) == (5, 15, 7)
    for codes in old.values():
        assert {*index.search(codes, np.ones(len(codes), np.float32), 50)[1].tolist()} <= {*index.trees.tolist()}
    assert any("terms of 7 equations are not indexed" in note for note in verify(library.folder).notes)
    assert update_index(library, encoder).structured == 7
    _check(library, encoder)


def test_update_drops_terms_of_dead_trees_when_they_are_most(library: Library, encoder: Encoder, notes: Path) -> None:
    update_index(library, encoder)
    library.remove(str(notes / "n1.md"))
    update_index(library, encoder)
    assert _opened(library, encoder).count == 15
    library.remove(str(notes / "n2.md"))
    assert update_index(library, encoder).structured == 0
    assert _check(library, encoder).count == 5
    library.remove(str(notes / "n3.md"))
    update_index(library, encoder)
    assert (_check(library, encoder).count, _state(library).terms) == (0, ())


def test_term_search_finds_only_allowed_equations(atlas: Library, encoder: Encoder) -> None:
    index, lists = _opened(atlas, encoder), _lists(atlas)
    codes = np.array(sorted(lists, key=lambda code: -len(lists[code]))[:5], np.uint32)
    weights = np.array([1, 2, 4, 8, 16], np.float32)
    for allowed in ([1400, 17, 3, 17, 10**12, -5, 600], index.trees[::-2].tolist(), []):
        right = [hit for hit in _by_hand(lists, codes, weights) if hit[1] in allowed]
        scores, trees = index.search(codes, weights, 10**6, np.array(allowed, np.int64))
        assert list(zip(scores.tolist(), trees.tolist(), strict=True)) == right


def test_rarest_terms_are_read_first_up_to_a_limit(atlas: Library, encoder: Encoder) -> None:
    index, lists = _opened(atlas, encoder), _lists(atlas)
    codes = np.array(sorted(lists, key=lambda code: (len(lists[code]), code))[-30:], np.uint32)
    weights = np.linspace(1, 2, 30, dtype=np.float32)
    sizes = np.cumsum([len(lists[code]) for code in codes.tolist()])
    mixed = np.random.default_rng(2).permutation(30)
    for budget, used in ((int(sizes[9]), 10), (int(sizes[9]) - 1, 9), (0, 3), (10**6, 30)):
        scores, trees = index.search(codes[mixed], weights[mixed], 10**6, max_postings=budget)
        right = dict((tree, score) for score, tree in _by_hand(lists, codes[:used], weights[:used]))
        assert dict(zip(trees.tolist(), scores.tolist(), strict=True)) == pytest.approx(right, rel=1e-5)


def test_search_reads_postings_in_proportion_to_the_equations(atlas: Library, encoder: Encoder) -> None:
    assert limit_postings(0) == limit_postings(100_000) < limit_postings(10**6) < limit_postings(10**7)
    assert limit_postings(10**7) == limit_postings(10**9)
    index, lists = _opened(atlas, encoder), _lists(atlas)
    codes = np.array(sorted(lists, key=lambda code: -len(lists[code]))[:120], np.uint32)
    assert sum(len(lists[code]) for code in codes.tolist()) > limit_postings(index.count)
    weights = np.ones(120, np.float32)
    limited, same, whole = (
        index.search(codes, weights, 10**6, max_postings=limit)[0].tolist()
        for limit in (None, limit_postings(index.count), 10**6)
    )
    assert limited == same != whole


def test_term_search_handles_empty_and_invalid_queries(library: Library, encoder: Encoder, tmp_path: Path) -> None:
    update_index(library, encoder)
    index = _opened(library, encoder)
    code = np.array([next(iter(_lists(library)))], np.uint32)
    one, none = np.ones(1, np.float32), np.zeros(0, np.float32)
    assert len(index.search(code, one, 5)[1]) > 0
    for codes, weights, k in ((code[:0], none, 5), (code, one, 0), (code, 0 * one, 5), (code + np.uint32(1), one, 5)):
        scores, trees = index.search(codes, weights, k)
        assert (scores.tolist(), trees.tolist()) == ([], [])
    assert index.count_frequencies(code[:0]).tolist() == []
    for codes, weights, k in ((code, none, 5), (code, -one, 5), (code, np.nan * one, 5), (code, one, -1)):
        with pytest.raises(BadInput):
            index.search(codes, weights, k)
    with Library.open(tmp_path / "empty", create=True) as empty:
        update_index(empty, encoder)
        index = _check(empty, encoder)
        assert index.count_frequencies(code).tolist() == [0]
        assert index.search(code, one, 5)[1].tolist() == []


def test_index_without_terms_is_read_and_completed(library: Library, encoder: Encoder) -> None:
    update_index(library, encoder)
    whole = _state(library)
    path = library.folder / "index" / INDEX_MANIFEST_NAME
    data = json.loads(path.read_bytes())["index"]
    assert whole.terms and data.pop("terms")
    path.write_bytes(format_checked_json("index", data))  # as it was written before there was any
    index = VectorIndex.open(library, encoder.digest)
    assert index.terms is None and len(index) == 15
    verdict = verify(library.folder)
    assert not verdict.problems and any("terms of 15 equations" in note for note in verdict.notes)
    report = update_index(library, encoder)
    assert (report.embedded, report.structured, report.papers) == (0, 15, 0)
    assert _state(library) == whole
    _check(library, encoder)


def test_terms_of_another_scheme_are_rebuilt(
    library: Library, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("eqkin.index.term_segments.SEGMENT_SCHEME", 0)
        patch.setattr("eqkin.index.update.SEGMENT_SCHEME", 0)
        update_index(library, encoder)
    assert VectorIndex.open(library, encoder.digest).terms is None
    assert any("terms of 15 equations" in note for note in verify(library.folder).notes)
    assert update_index(library, encoder).structured == 15
    _check(library, encoder)


def test_columns_are_those_of_the_database(library: Library, encoder: Encoder) -> None:
    update_index(library, encoder)
    live = list_tree_ids(library)
    np.testing.assert_array_equal(_opened(library, encoder).get_columns(live), read_columns(library, live))


def test_terms_do_not_depend_on_the_model(library: Library, encoder: Encoder, other_encoder: Encoder) -> None:
    update_index(library, encoder)
    terms = _state(library).terms
    report = update_index(library, other_encoder)
    assert (report.embedded, report.structured) == (15, 0)
    assert _state(library).terms == terms
    _check(library, other_encoder)
    assert update_index(library, other_encoder, rebuild=True).structured == 15


def test_interrupted_update_keeps_the_terms_it_extracted(library: Library, encoder: Encoder) -> None:
    small = IndexSettings(step_trees=4)

    def interrupt(stage: str, done: int, total: int) -> None:
        if stage == "structure":
            assert total == 15
            if done >= 8:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        update_index(library, encoder, interrupt, settings=small)
    missing = _opened(library, encoder).missing
    assert 0 < missing <= 7
    report = update_index(library, encoder)
    assert (report.embedded, report.structured) == (0, missing)
    _check(library, encoder)


def _write(folder: Path, trees: np.ndarray, owners: np.ndarray, codes: np.ndarray) -> TermsEntry:
    """A segment of trees x, y, x, y, ... with some terms, each of which occurs once."""
    norms = np.zeros((len(trees), COMPARED_FAMILIES), np.uint8)
    ones, operators = np.ones(len(codes), np.uint8), _make_operators(len(trees))
    columns = np.stack((trees // 3, trees % 3, trees + 7), axis=1)
    return write_segment(folder, trees, Structure(owners, codes, ones, norms, operators, columns))


def _make_operators(count: int) -> OperatorForest:
    """The operator trees of x, y, x, y, ..."""
    builder = ForestBuilder()
    for name in "xy":
        builder.add_forest(to_forest(parse_mathml(f"<math><mi>{name}</mi></math>")))
    return parse_operators(builder.build()).select(np.arange(count) % 2)


def _large(folder: Path) -> tuple[TermsEntry, np.ndarray, np.ndarray]:
    """A file of more trees than 16 bits can tell apart, and which of 40 terms they have."""
    chance = np.random.default_rng(0)
    has = chance.random((150_000, 40)) < np.linspace(0, 0.08, 40)
    owners, terms = np.nonzero(has)
    trees = np.cumsum(chance.integers(1, 4, len(has)))
    mixed = chance.permutation(len(owners))
    codes = (7 * terms[mixed]).astype(np.uint32)
    return _write(folder, trees, owners[mixed], codes), trees, has


def test_search_by_length_prefers_short_formulas(atlas: Library, encoder: Encoder) -> None:
    index, lists = _opened(atlas, encoder), _lists(atlas)
    codes = np.array(sorted(lists, key=lambda code: -len(lists[code]))[:9], np.uint32)
    scores, trees = index.search(codes, np.ones(9, np.float32), 10**6)
    nodes = np.diff(index.get_operators(trees).offsets)
    expected = dict(zip(trees.tolist(), scores * (nodes + 5.0) ** -0.35, strict=True))
    scores, trees = index.search(codes, np.ones(9, np.float32), 50, by_length=True)
    assert scores.tolist() == pytest.approx(sorted(expected.values(), reverse=True)[:50], rel=1e-4)
    assert scores.tolist() == pytest.approx([expected[tree] for tree in trees.tolist()], rel=1e-4)


def test_search_tells_more_trees_apart_than_16_bits_can(tmp_path: Path) -> None:
    entry, trees, has = _large(tmp_path)
    index = TermIndex.open(tmp_path, [entry], trees)
    assert index is not None
    codes = np.arange(0, 280, 7, dtype=np.uint32)
    np.testing.assert_array_equal(index.count_frequencies(codes), has.sum(axis=0))
    weights = np.arange(40, dtype=np.float32)
    scores, found = index.search(codes, weights, 500, max_postings=10**7)
    right = has @ weights
    order = np.lexsort((trees, -right))[:500]
    np.testing.assert_array_equal(found, trees[order])
    np.testing.assert_array_equal(scores, right[order])
    np.testing.assert_array_equal(index.search(codes[-1:], weights[-1:], 900)[1], trees[has[:, -1]][:900])  # all equal


def test_merged_segment_has_the_live_trees(tmp_path: Path) -> None:
    entry, trees, has = _large(tmp_path)
    codes = np.array([7, 7, 9], np.uint32)
    late = _write(tmp_path, np.array([0, 10**6]), np.array([0, 1, 1]), codes)
    live = np.concatenate(([0], trees[::3], [10**6]))
    merged = TermCodec(tmp_path, live).merge([entry, late])
    assert merged is not None
    segment = open_segment(tmp_path, merged)
    np.testing.assert_array_equal(segment.trees, live)
    index = TermIndex([segment], live)
    expected = has[::3].sum(axis=0)[1] + 2, 1
    assert tuple(index.count_frequencies(np.array([7, 9], np.uint32)).tolist()) == expected
    scores, found = index.search(np.array([77], np.uint32), np.ones(1, np.float32), 10**6)
    np.testing.assert_array_equal(found, trees[::3][has[::3, 11]])
    assert (scores == 1).all()
    asked = np.array([trees[3], 10**6, 0, trees[6]])
    columns = index.get_columns(asked)
    np.testing.assert_array_equal(columns, (asked, asked // 3, asked % 3, asked + 7))
    operators = index.get_operators(asked)
    assert [operators.to_json(tree) for tree in range(4)] == ["v:y", "v:y", "v:x", "v:x"]


def test_lists_with_impossible_rows_raise_corrupt_data(tmp_path: Path) -> None:
    entry = _write(tmp_path, np.array([3, 5]), np.array([1]), np.array([7], np.uint32))
    whole = (tmp_path / entry.file).read_bytes()
    header = json.loads(whole[8 : (start := 8 + int.from_bytes(whole[:8], "little"))])
    first, end = (start + offset for offset in header["postings.data"]["data_offsets"])
    (tmp_path / entry.file).write_bytes(whole[:first] + bytes(end - first) + whole[end:])  # far too many rows
    index = TermIndex.open(tmp_path, [entry], np.array([3, 5]))
    assert index is not None
    with pytest.raises(CorruptData, match="run `eqkin index --rebuild`"):
        index.search(np.array([7], np.uint32), np.ones(1, np.float32), 3)
    with pytest.raises(CorruptData):
        TermCodec(tmp_path, np.array([3, 5])).merge([entry])


def test_index_has_the_operator_trees_of_all_equations(library: Library, encoder: Encoder, notes: Path) -> None:
    update_index(library, encoder, settings=IndexSettings(step_trees=4, max_segment_trees=8))
    library.add(write_note(notes, 9, 3))
    update_index(library, encoder)
    index = _opened(library, encoder)
    trees = np.random.default_rng(1).permutation(index.trees)
    found, expected = index.get_operators(trees), parse_operators(library.get_trees(trees))
    assert [found.to_json(at) for at in range(18)] == [expected.to_json(at) for at in range(18)]
    assert np.array_equal(found.forms[:, :3], expected.forms[expected.form_offsets[:-1], :3])
    assert count_unparsed(library.folder / "index", _state(library).terms or ()) == np.count_nonzero(expected.unparsed)


def test_damaged_operator_trees_raise_corrupt_data(tmp_path: Path) -> None:
    entry = _write(tmp_path, np.array([3]), np.array([0]), np.array([7], np.uint32))
    whole = (tmp_path / entry.file).read_bytes()
    start = 8 + int.from_bytes(whole[:8], "little")
    for name, (first, end) in ((n, a["data_offsets"]) for n, a in json.loads(whole[8:start]).items()):
        if name in ("operators.nodes", "operators.label", "operators.label_bytes", "operators.names", "runs"):
            damaged = whole[: start + first] + b"\xff" * (end - first) + whole[start + end :]
            (tmp_path / entry.file).write_bytes(damaged)
            with pytest.raises(CorruptData):
                segment = open_segment(tmp_path, entry)
                with segment.check_damage():
                    segment.operators.read(np.array([0]))
