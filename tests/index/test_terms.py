"""Terms of a library's operator trees: a search finds what a loop over all equations finds."""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import pytest

from eqkin.api import Library, verify
from eqkin.encoder.encoder import Encoder
from eqkin.errors import BadInput
from eqkin.index.features import extract_terms_and_norms, normalise_length
from eqkin.index.index import Index, limit_postings
from eqkin.index.manifest import IndexManifest
from eqkin.index.update import update_index
from eqkin.library.references import read_columns
from tests.index.conftest import write_note


def _iter_terms(library: Library) -> Iterator[tuple[int, np.ndarray]]:
    """The terms of each equation that should be indexed."""
    for keys, _, operators in library.iter_trees(library.list_tree_keys()):
        starts, codes, _ = extract_terms_and_norms(operators)
        yield from zip(keys.tolist(), np.split(codes, starts[1:-1]), strict=True)


def _list_keys(library: Library) -> dict[int, set[int]]:
    """The equations with each term."""
    keys = defaultdict(set)
    for key, codes in _iter_terms(library):
        for code in codes.tolist():
            keys[code].add(key)
    return keys


def _search_by_hand(index: Index, codes: np.ndarray, weights: np.ndarray, lists: dict) -> list[tuple[float, int]]:
    sums: dict[int, float] = defaultdict(float)
    for code, weight in zip(codes.tolist(), weights.tolist(), strict=True):
        for key in lists.get(code, ()):
            sums[key] += weight
    keys = np.array([key for key, total in sums.items() if total > 0], np.int64)
    factors = normalise_length(np.diff(index.get_operators(keys).offsets)) if len(keys) else np.zeros(0, np.float32)
    scores = np.array([sums[key] for key in keys.tolist()], np.float32) * factors
    return sorted(zip(scores.tolist(), keys.tolist(), strict=True), key=lambda hit: (-hit[0], hit[1]))


def _search(index: Index, codes: np.ndarray, weights: np.ndarray, k: int, **options) -> list[tuple[float, int]]:
    options = {"max_postings": 10**6} | options
    scores, keys = index.search_terms(codes, weights, k, **options)
    assert (scores.dtype, keys.dtype) == (np.float32, np.int64)
    return list(zip(scores.tolist(), keys.tolist(), strict=True))


def test_search_finds_what_a_loop_over_all_equations_finds(atlas: Library, encoder: Encoder) -> None:
    atlas.remove("atlas:probability")
    index = Index.open(atlas, encoder.digest)
    lists, terms = _list_keys(atlas), dict(_iter_terms(atlas))
    assert index.keys.tolist() == sorted(terms)
    chance = np.random.default_rng(5)
    for key in chance.permutation(sorted(terms))[:20].tolist():
        codes = np.append(terms[key], np.uint32(12345))
        # sums of whole numbers are exact, and many are equal
        weights = chance.integers(0, 4, len(codes)).astype(np.float32)
        right = _search_by_hand(index, codes, weights, lists)
        for k in (1, 7, 10_000):
            assert _search(index, codes, weights, k) == right[:k]


def test_search_finds_only_allowed_equations(atlas: Library, encoder: Encoder) -> None:
    index, lists = Index.open(atlas, encoder.digest), _list_keys(atlas)
    codes = np.array(sorted(lists, key=lambda code: -len(lists[code]))[:5], np.uint32)
    weights = np.array([1, 2, 4, 8, 16], np.float32)
    for allowed in ([1400, 17, 3, 17, 10**12, -5, 600], index.keys[::-2].tolist(), []):
        right = [hit for hit in _search_by_hand(index, codes, weights, lists) if hit[1] in allowed]
        assert _search(index, codes, weights, 10**6, allowed=np.array(allowed, np.int64)) == right


def test_rarest_terms_are_read_first_up_to_a_limit(atlas: Library, encoder: Encoder) -> None:
    index, lists = Index.open(atlas, encoder.digest), _list_keys(atlas)
    codes = np.array(sorted(lists, key=lambda code: (len(lists[code]), code))[-30:], np.uint32)
    weights = np.linspace(1, 2, 30, dtype=np.float32)
    sizes = np.cumsum([len(lists[code]) for code in codes.tolist()])
    mixed = np.random.default_rng(2).permutation(30)
    for budget, used in ((int(sizes[9]), 10), (int(sizes[9]) - 1, 9), (0, 3), (10**6, 30)):
        found = _search(index, codes[mixed], weights[mixed], 10**6, max_postings=budget)
        right = {key: score for score, key in _search_by_hand(index, codes[:used], weights[:used], lists)}
        assert {key: score for score, key in found} == pytest.approx(right, rel=1e-5)


def test_search_reads_postings_in_proportion_to_the_equations(atlas: Library, encoder: Encoder) -> None:
    assert limit_postings(0) == limit_postings(100_000) < limit_postings(10**6) < limit_postings(10**7)
    assert limit_postings(10**7) == limit_postings(10**9)
    index, lists = Index.open(atlas, encoder.digest), _list_keys(atlas)
    codes = np.array(sorted(lists, key=lambda code: -len(lists[code]))[:120], np.uint32)
    assert sum(len(lists[code]) for code in codes.tolist()) > limit_postings(len(index))
    limits = (None, limit_postings(len(index)), 10**6)
    limited, same, whole = (_search(index, codes, np.ones(120, np.float32), 10**6, max_postings=n) for n in limits)
    assert limited == same != whole


def test_search_handles_empty_and_invalid_queries(library: Library, encoder: Encoder, tmp_path) -> None:
    update_index(library, encoder)
    index = Index.open(library, encoder.digest)
    code = np.array([next(iter(_list_keys(library)))], np.uint32)
    one, none = np.ones(1, np.float32), np.zeros(0, np.float32)
    assert _search(index, code, one, 5)
    for codes, weights, k in ((code[:0], none, 5), (code, one, 0), (code, 0 * one, 5), (code + np.uint32(1), one, 5)):
        assert _search(index, codes, weights, k) == []
    for codes, weights, k in ((code, none, 5), (code, -one, 5), (code, np.nan * one, 5), (code, one, -1)):
        with pytest.raises(BadInput):
            index.search_terms(codes, weights, k)
    with Library.open(tmp_path / "empty", create=True) as empty:
        update_index(empty, encoder)
        assert _search(Index.open(empty, encoder.digest), code, one, 5) == []


def test_index_of_other_terms_is_refused_and_rebuilt(
    library: Library, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(IndexManifest, "__dataclass_fields__", IndexManifest.__dataclass_fields__)
        patch.setattr("eqkin.index.manifest.TERM_SCHEME", 0)
        patch.setattr(IndexManifest.__init__, "__kwdefaults__", IndexManifest.__init__.__kwdefaults__ | {"terms": 0})
        update_index(library, encoder)
    with pytest.raises(BadInput):
        Index.open(library, encoder.digest)
    verdict = verify(library.folder)
    assert verdict.notes and not verdict.problems
    assert update_index(library, encoder).indexed == 15
    assert len(Index.open(library, encoder.digest)) == 15


def test_columns_norms_and_operator_trees_are_those_of_the_library(library: Library, encoder: Encoder, notes) -> None:
    update_index(library, encoder)
    library.add(write_note(notes, 9, 3))
    update_index(library, encoder)
    index = Index.open(library, encoder.digest)
    keys = np.random.default_rng(1).permutation(index.keys)
    features = index.get_features(keys)
    np.testing.assert_array_equal(features.columns, read_columns(library, keys))
    found, right = features.operators, library.get_operators(keys)
    assert [found.to_json(at) for at in range(18)] == [right.to_json(at) for at in range(18)]
    np.testing.assert_array_equal(found.formula_forms[:, :3], right.formula_forms[:, :3])
    np.testing.assert_array_equal(found.unparsed, right.unparsed)
    norms = features.norms
    assert norms.shape[1] == 18
    for at in range(18):
        np.testing.assert_array_equal(index.get_features(keys[at : at + 1]).norms[:, 0], norms[:, at])


def test_same_forms_of_removed_papers_are_not_found(library: Library, encoder: Encoder, notes) -> None:
    update_index(library, encoder)
    query = library.get_operators(library.list_tree_keys()[:1])
    (found,) = Index.open(library, encoder.digest).find_same_form(query).tolist()
    library.remove(str(notes / "n1.md"))
    assert found not in library.list_tree_keys()
    assert Index.open(library, encoder.digest).find_same_form(query).tolist() == []


def test_same_forms_are_found_as_a_whole(atlas: Library, encoder: Encoder) -> None:
    index = Index.open(atlas, encoder.digest)
    forms = index.get_operators(index.keys).formula_forms[:, :3]
    for row in range(0, len(index), 100):
        same = ((forms == forms[row]) & (forms[row] != 0)).any(axis=1)
        found = index.find_same_form(atlas.get_operators(index.keys[row : row + 1]))
        assert set(found.tolist()) <= set(index.keys[same].tolist())
        assert index.keys[row] in found or not forms[row].any()
