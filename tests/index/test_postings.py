"""Inverted lists in few bits: what is read is what was stored."""

from collections import defaultdict
from contextlib import suppress

import numpy as np
import pytest

from eqkin.index.posting_kernels import COUNT, SIZE, TERM
from eqkin.index.postings import PostingLists, count_rows, encode_postings


def make_postings(n_rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, codes and counts of lists of all sizes, some with codes that begin alike, in random order."""
    chance = np.random.default_rng(seed)
    shares = np.concatenate((np.geomspace(1 / n_rows, 1, 60), np.full(300, 1 / n_rows)))
    codes = chance.integers(0, 1 << 26, len(shares), dtype=np.uint32)
    codes[::3] &= np.uint32(0xFF)
    codes = np.unique(codes)
    has = chance.random((n_rows, len(codes))) < chance.permutation(shares)[: len(codes)]
    rows, term = np.nonzero(has)
    counts = np.where(term % 4, 1, chance.integers(1, 17, len(rows))).astype(np.uint8)
    mixed = chance.permutation(len(rows))
    return rows[mixed], codes[term][mixed], counts[mixed]


def group(rows: np.ndarray, codes: np.ndarray, counts: np.ndarray) -> dict[int, dict[int, int]]:
    lists: dict[int, dict[int, int]] = defaultdict(dict)
    for row, code, count in zip(rows.tolist(), codes.tolist(), counts.tolist(), strict=True):
        assert row not in lists[code]
        lists[code][row] = count
    return lists


@pytest.mark.parametrize("n_rows", [1, 2, 300, 5_000])
def test_lists_are_read_as_they_were(n_rows: int) -> None:
    postings = make_postings(n_rows)
    lists, expected = PostingLists(encode_postings(*postings, n_rows), n_rows), group(*postings)
    assert group(*lists.read_all()) == expected
    chance = np.random.default_rng(1)
    codes = chance.permutation(np.array([*{*expected, 1, 2, 3}], np.uint32))
    found = lists.find(codes)
    assert count_rows(found, len(codes)).tolist() == [len(expected.get(code, ())) for code in codes.tolist()]
    rows, (term, count) = lists.read_rows(found), np.repeat(found[:, [TERM, COUNT]], found[:, SIZE], axis=0).T
    assert group(rows, codes[term], count) == {code: rows for code, rows in expected.items() if rows}
    asked = np.sort(chance.permutation(n_rows)[:200])
    assert lists.count_terms(codes, asked).tolist() == [
        [expected.get(code, {}).get(row, 0) for row in asked.tolist()] for code in codes.tolist()
    ]
    with pytest.raises(ValueError, match="row"):
        lists.count_terms(codes, np.array([n_rows]))


@pytest.mark.parametrize("step", [1, 7, 50, 400])
def test_terms_of_long_lists_are_counted_in_any_rows(step: int) -> None:
    chance = np.random.default_rng(step)
    rows = np.cumsum(chance.integers(1, 2 * step + 1, 3_000))
    n_rows = int(rows[-1]) + 5
    codes, counts = np.full(3_000, 9, np.uint32), np.full(3_000, 4, np.uint8)
    lists = PostingLists(encode_postings(rows, codes, counts, n_rows), n_rows)
    for asked in (rows[:40], rows[-40:], np.arange(n_rows), np.sort(chance.permutation(n_rows)[:200])):
        assert np.array_equal(lists.count_terms(codes[:1], asked)[0], 4 * np.isin(asked, rows))


@pytest.mark.parametrize("k", [0, 1, 40, 10_000])
def test_best_rows_are_among_those_found(k: int) -> None:
    chance = np.random.default_rng(1)
    postings = make_postings(5_000)
    lists, codes = PostingLists(encode_postings(*postings, 5_000), 5_000), np.unique(postings[1])
    weights, factors = chance.integers(1, 9, len(codes)).astype(np.float32), chance.random(5_000, np.float32) + 1
    factors *= chance.random(5_000) < 0.7
    term = np.searchsorted(codes, postings[1])
    expected = np.bincount(postings[0], weights[term], 5_000).astype(np.float32) * factors
    rows, scores = lists.find_best(lists.find(codes), weights, factors, k)
    assert len(rows) == len(set(rows.tolist())) >= min(k, np.count_nonzero(expected))
    np.testing.assert_allclose(scores, expected[rows])
    left_out = np.delete(expected, rows)
    assert not k or scores.min() >= left_out.max(initial=0)


def test_terms_of_one_row_with_the_same_code_are_stored_once() -> None:
    rows, codes, counts = make_postings(300)
    expected = group(rows, codes, counts)
    twice = [np.concatenate((each, each[::7])) for each in (rows, codes, counts)]
    lists = PostingLists(encode_postings(*twice, 300), 300)
    assert group(*lists.read_all()) == expected


def test_terms_whose_codes_end_alike_share_a_list() -> None:
    codes = np.array([5, 5 + (1 << 26), 5 + (1 << 25)], np.uint32)
    lists = PostingLists(encode_postings(np.arange(3), codes, np.ones(3, np.uint8), 3), 3)
    assert [lists.read_rows(lists.find(codes[[at]])).tolist() for at in range(3)] == [[0, 1], [0, 1], [2]]


def test_no_postings_are_found_in_an_empty_segment() -> None:
    nothing = np.zeros(0, np.uint32)
    for n_rows in (0, 5):
        lists = PostingLists(encode_postings(nothing, nothing, np.zeros(0, np.uint8), n_rows), n_rows)
        assert len(lists.read_all()[0]) == 0
        assert count_rows(lists.find(np.array([0, 7], np.uint32)), 2).tolist() == [0, 0]
        assert len(lists.read_rows(lists.find(nothing))) == 0


def test_codes_that_all_begin_alike_are_found() -> None:
    codes, ones = np.arange(70_000, dtype=np.uint32), np.ones(70_000, np.uint8)
    lists = PostingLists(encode_postings(codes, codes, ones, 70_000), 70_000)
    assert lists.read_all()[1].tolist() == codes.tolist()
    asked = codes[::10_000].copy()
    assert lists.read_rows(lists.find(asked)).tolist() == asked.tolist()


@pytest.mark.parametrize("seed", range(30))
def test_damaged_lists_raise_value_error_or_have_only_rows_that_exist(seed: int) -> None:
    chance = np.random.default_rng(seed)
    postings = make_postings(2_000)
    arrays, codes = encode_postings(*postings, 2_000), np.unique(postings[1])
    name = list(arrays)[seed % len(arrays)]
    damaged = arrays[name].copy()
    raw = damaged.view(np.uint8)
    raw[chance.integers(0, len(raw), 1 + seed)] = chance.integers(0, 256, 1 + seed)
    for array in (damaged, np.full_like(damaged, 254), np.zeros_like(damaged), damaged[:-1]):
        try:
            lists = PostingLists(arrays | {name: array}, 2_000)
        except ValueError:
            continue
        with suppress(ValueError):
            assert lists.read_all()[0].max(initial=0) < 2_000
        with suppress(ValueError):
            ones = np.ones(2_000, np.float32)
            rows, _ = lists.find_best(lists.find(codes), np.ones(len(codes), np.float32), ones, 5)
            assert len(set(rows.tolist())) == len(rows)
        with suppress(ValueError):
            assert lists.count_terms(codes, np.arange(2_000)).shape == (len(codes), 2_000)


def test_rows_that_do_not_exist_raise_value_error() -> None:
    lists = PostingLists(encode_postings(*make_postings(5_000), 5_000), 4_900)
    with pytest.raises(ValueError, match="row"):
        lists.read_all()
