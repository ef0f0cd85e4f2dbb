"""Document frequencies and idf weights: counted, stored, and bundled."""

import numpy as np
import pytest

from eqkin.errors import CorruptData
from eqkin.formulas.engine import parse_operators
from eqkin.formulas.terms import (
    RARE_TERM_COUNT,
    TERM_FAMILIES,
    DocumentFrequencies,
    extract_terms,
    load_bundled_frequencies,
)
from tests.formulas.strategies import build

X, Y, PLUS = ("mi", "", "x", []), ("mi", "", "y", []), ("mo", "", "+", [])
FOREST = [("mrow", "", "", [X, PLUS, Y]), ("mrow", "", "", [X, PLUS, X]), X, Y, X, ("mrow", "", "", [Y, Y, Y])]


def _parse(*trees):
    return parse_operators(build(trees))


def _code(tree):
    """Return the code of the path that is only a leaf."""
    terms = extract_terms(_parse(tree))
    return terms.code[terms.family == TERM_FAMILIES.index("path")][:1]


def _count(frequencies, code):
    return dict(zip(frequencies.codes.tolist(), frequencies.counts.tolist(), strict=True)).get(int(code[0]), 0)


def test_document_frequency_counts_each_formula_once():
    frequencies = DocumentFrequencies.count(_parse(*FOREST), kept=1)
    assert frequencies.formulas == 6
    assert (np.diff(frequencies.codes.astype(np.int64)) > 0).all()
    assert (_count(frequencies, _code(X)), _count(frequencies, _code(Y))) == (4, 3)


def test_rare_terms_are_left_out_of_the_table():
    frequencies = DocumentFrequencies.count(_parse(*FOREST), kept=4)
    assert (_count(frequencies, _code(X)), _count(frequencies, _code(Y))) == (4, 0)
    worth = frequencies.compute_idf(np.array([*_code(X), *_code(Y), 12345], np.uint32))
    assert worth[0] == pytest.approx(np.log(7 / 5) + 0.1)
    assert worth[1] == worth[2] == pytest.approx(np.log(7 / (1 + RARE_TERM_COUNT)) + 0.1)
    assert worth.dtype == np.float32


def test_idf_decreases_with_document_frequency():
    frequencies = DocumentFrequencies(1_000, np.array([1, 5, 9], np.uint32), np.array([999, 100, 24], np.uint32))
    worth = frequencies.compute_idf(np.array([1, 5, 9, 2], np.uint32))
    assert (np.diff(worth) > 0).all()
    assert worth[0] > 0


def test_idf_finds_terms_in_any_bucket():
    random = np.random.default_rng(2)
    codes = np.unique(np.concatenate((random.integers(0, 2**32, 3_000), np.arange(50), 2**32 - 1 - np.arange(50))))
    counts = random.integers(24, 10_000, len(codes))
    frequencies = DocumentFrequencies(10_000, codes.astype(np.uint32), counts.astype(np.uint32))
    asked = np.concatenate((codes[::-1], random.integers(0, 2**32, 3_000))).astype(np.uint32)
    known = dict(zip(codes.tolist(), counts.tolist(), strict=True))
    expected = [np.log(10_001 / (1 + known.get(code, RARE_TERM_COUNT))) + 0.1 for code in asked.tolist()]
    assert frequencies.compute_idf(asked) == pytest.approx(expected, rel=1e-5)


def test_empty_table_treats_all_terms_as_rare():
    nothing = DocumentFrequencies.count(_parse())
    assert nothing.formulas == 0
    assert np.isfinite(nothing.compute_idf(np.array([1, 2], np.uint32))).all()
    assert load_bundled_frequencies().compute_idf(np.zeros(0, np.uint32)).shape == (0,)


def test_frequencies_round_trip_through_a_file(tmp_path):
    written = DocumentFrequencies.count(_parse(*FOREST), kept=1)
    written.save(tmp_path / "f.safetensors")
    read = DocumentFrequencies.load(tmp_path / "f.safetensors")
    assert read.formulas == 6
    assert np.array_equal(read.codes, written.codes) and np.array_equal(read.counts, written.counts)


@pytest.mark.parametrize("content", [None, b"", b"nonsense", b"\x02\0\0\0\0\0\0\0{}"])
def test_damaged_file_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / "f.safetensors").write_bytes(content)
    with pytest.raises(CorruptData, match=r"f\.safetensors.*install eqkin again"):
        DocumentFrequencies.load(tmp_path / "f.safetensors")


def test_bundled_idf_of_common_terms_is_small():
    frequencies = load_bundled_frequencies()
    assert frequencies is load_bundled_frequencies()
    assert frequencies.formulas > 100_000
    assert (np.diff(frequencies.codes.astype(np.int64)) > 0).all()
    assert frequencies.counts.max() <= frequencies.formulas
    common, rare = frequencies.compute_idf(np.concatenate((_code(X), _code(("mi", "", "ж", [])))))
    assert 0 < common < 2 < 4 < rare
