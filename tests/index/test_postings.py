"""Inverted lists in few bits: what is read is what was stored."""

from collections import defaultdict

import numpy as np
import pytest

from eqkin.index.postings import CodeTable, PostingLists, encode_postings, open_windows, pack_bits, read_bits


def make_postings(n_rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, codes and counts of lists of all sizes, some with codes that begin alike, in random order."""
    chance = np.random.default_rng(seed)
    shares = np.concatenate((np.geomspace(1 / n_rows, 1, 60), np.full(300, 1 / n_rows)))
    codes = chance.integers(0, 1 << 32, len(shares), dtype=np.uint32)
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
    assert lists.is_valid() and group(*lists.read_all()) == expected
    chance = np.random.default_rng(1)
    codes = chance.permutation(np.array([*{*expected, 1, 2, 3}], np.uint32))
    found = lists.find(codes)
    assert lists.count_rows(found, len(codes)).tolist() == [len(expected.get(code, ())) for code in codes.tolist()]
    rows, term, count = lists.read_rows(found)
    assert group(rows, codes[term], count) == {code: rows for code, rows in expected.items() if rows}
    weights, scores = chance.integers(1, 9, len(codes)).astype(np.float32), np.zeros(n_rows, np.float32)
    lists.add_weights(scores, found, weights)
    assert np.array_equal(scores, np.bincount(rows, weights[term], n_rows))
    asked = np.sort(chance.permutation(n_rows)[:200])
    counts = lists.count_terms(found, len(codes), asked)
    assert counts.tolist() == [
        [expected.get(code, {}).get(row, 0) for row in asked.tolist()] for code in codes.tolist()
    ]
    chosen = codes % 2 == 0
    _, term, _ = lists.read_rows(found.select(chosen))
    assert set(term.tolist()) == {at for at in np.flatnonzero(chosen).tolist() if codes[at] in expected}


def test_terms_of_one_row_with_the_same_code_are_stored_once() -> None:
    rows, codes, counts = make_postings(300)
    expected = group(rows, codes, counts)
    twice = [np.concatenate((each, each[::7])) for each in (rows, codes, counts)]
    lists = PostingLists(encode_postings(*twice, 300), 300)
    assert group(*lists.read_all()) == expected


def test_no_postings_are_found_in_an_empty_segment() -> None:
    nothing = np.zeros(0, np.uint32)
    for n_rows in (0, 5):
        lists = PostingLists(encode_postings(nothing, nothing, np.zeros(0, np.uint8), n_rows), n_rows)
        assert lists.is_valid() and len(lists.read_all()[0]) == 0
        assert lists.count_rows(lists.find(np.array([0, 7], np.uint32)), 2).tolist() == [0, 0]
        assert len(lists.read_rows(lists.find(nothing))[0]) == 0


def test_table_finds_codes_that_all_begin_alike() -> None:
    codes = np.arange(70_000, dtype=np.uint32)
    table = CodeTable.build(codes, codes, 17)
    assert table.is_valid() and np.array_equal(table.read_all()[0], codes)
    _, entries, term, place = table.find(np.array([69_999, 70_000, 5], np.uint32))
    assert (entries[term, place] & (1 << 17) - 1).tolist() == [69_999, 5]


def test_numbers_of_few_bits_are_read_from_anywhere() -> None:
    chance = np.random.default_rng(0)
    widths = chance.integers(0, 58, 2_000)
    numbers = chance.integers(0, 1 << 57, 2_000) & (1 << widths) - 1
    data, starts = pack_bits(numbers, widths), np.cumsum(widths) - widths
    mixed = chance.permutation(2_000)
    masks = ((1 << widths[mixed]) - 1).astype(np.uint64)
    assert np.array_equal(read_bits(open_windows(data), starts[mixed], masks), numbers[mixed])
    assert len(data) == (widths.sum() + 7) // 8 + 8


def test_rows_that_do_not_exist_raise_value_error() -> None:
    rows, codes, counts = make_postings(5_000)
    arrays = encode_postings(rows, codes, counts, 5_000)
    for name in ("one.entries", "few.gaps", "many.data"):
        lists = PostingLists(arrays | {name: np.full_like(arrays[name], 254)}, 5_000)
        with pytest.raises((ValueError, IndexError)):
            lists.read_all()
