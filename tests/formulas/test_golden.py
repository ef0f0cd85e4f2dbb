"""Terms of fixed formulas: the bundled table of frequencies counts exactly these hashes."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from eqkin.formulas.conversion import convert_formulas
from eqkin.formulas.engine import parse_operators
from eqkin.formulas.terms import extract_terms

GOLDEN = [line.split("\t") for line in Path(__file__).with_name("golden_hashes.tsv").read_text("utf-8").splitlines()]


@pytest.fixture(scope="module")
def forest(engine):
    return convert_formulas(engine, [latex for *_, latex in GOLDEN]).forest


def digest(*arrays):
    return hashlib.blake2b(
        b"".join(np.ascontiguousarray(array).tobytes() for array in arrays), digest_size=8
    ).hexdigest()


def test_hashes_of_terms_never_change(forest):
    operators = parse_operators(forest)
    terms = [extract_terms(operators.select([tree])) for tree in range(len(forest))]
    assert [digest(t.code, t.family, t.count) for t in terms] == [expected for expected, _ in GOLDEN]
