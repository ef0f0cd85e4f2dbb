"""Parts of an index: what is written is read again, merged parts have what is alive, damage is found at opening."""

import sys
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eqkin.api import Library
from eqkin.encoder.encoder import Encoder
from eqkin.errors import CorruptData
from eqkin.formulas.engine import parse_operators
from eqkin.formulas.operators import OperatorForest
from eqkin.formulas.terms import COMPARED_FAMILIES
from eqkin.index.features import TreeFeatures, normalise, normalise_length
from eqkin.index.index import Index
from eqkin.index.manifest import IndexManifest
from eqkin.index.parts import MAX_ROWS, Part
from eqkin.index.update import update_index
from eqkin.library.references import EquationColumns
from tests.index.conftest import replace_content


@pytest.fixture(scope="session")
def trees(encoder: Encoder) -> OperatorForest:
    """Four operator trees."""
    return parse_operators(encoder.parse_formulas(["a = b", "x^2", r"\sum_k \frac{1}{k!}", r"\text{naïve } y"]))


def make_part(trees: OperatorForest, keys: np.ndarray, chance: np.random.Generator, terms: int = 40) -> Part:
    """A part of random vectors and terms."""
    count = len(keys)
    has = chance.random((count, terms)) < 0.2
    features = TreeFeatures(
        keys=keys,
        vectors=normalise(chance.normal(size=(count, 16)).astype(np.float32)),
        term_starts=np.append(0, np.cumsum(has.sum(axis=1))),
        codes=(7 * np.nonzero(has)[1]).astype(np.uint32),
        norms=chance.integers(0, 255, (COMPARED_FAMILIES, count)).astype(np.uint8).T,
        operators=trees.select(np.arange(count) % len(trees)),
    )
    halves = [features] if count < 2 else split_features(features, count // 2)
    return Part.build(halves, EquationColumns(keys, keys // 3, keys % 3, keys % 1000))


def split_features(features: TreeFeatures, at: int) -> list[TreeFeatures]:
    """The same in two pieces, as two tasks would give them."""
    starts = features.term_starts
    return [
        TreeFeatures(
            keys=features.keys[rows],
            vectors=features.vectors[rows],
            term_starts=starts[rows.start : rows.stop + 1] - starts[rows.start],
            codes=features.codes[starts[rows.start] : starts[rows.stop]],
            norms=features.norms[rows],
            operators=features.operators.select(np.arange(rows.start, rows.stop)),
        )
        for rows in (slice(0, at), slice(at, len(features.keys)))
    ]


def describe(part: Part) -> dict[int, object]:
    """All that a part has of each equation."""
    owners = np.repeat(part.codes, np.diff(part.starts))
    operators = part.read_operators(np.arange(len(part)))
    found = {}
    for row, key in enumerate(part.keys.tolist()):
        found[key] = (
            part.read_vectors(np.array([row])).tolist(),
            sorted(owners[part.rows == row].tolist()),
            part.norms[row].tolist(),
            (int(part.paper[row]), int(part.display[row]), int(part.latex[row])),
            operators.to_json(row),
            operators.formula_forms[row].tolist(),
            int(operators.unparsed[row]),
        )
    return found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(count=st.integers(0, 30), seed=st.integers(0, 99))
def test_what_is_written_is_read_again(tmp_path: Path, trees: OperatorForest, count: int, seed: int) -> None:
    chance = np.random.default_rng(seed)
    part = make_part(trees, np.cumsum(chance.integers(1, 9, count)) + 2**40, chance)
    entry = part.write(tmp_path)
    opened = Part.open(tmp_path, entry)
    assert (entry.count, entry.bytes) == (count, (tmp_path / entry.file).stat().st_size)
    assert describe(opened) == describe(part)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(sizes=st.lists(st.integers(0, 12), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_merged_part_has_what_is_alive_without_rounding_again(
    trees: OperatorForest, sizes: list[int], seed: int
) -> None:
    chance = np.random.default_rng(seed)
    keys = np.split(chance.permutation(1_000)[: sum(sizes)], np.cumsum(sizes)[:-1])
    parts = [make_part(trees, np.sort(some), chance) for some in keys]
    alive = [chance.random(len(part)) < 0.7 for part in parts]
    merged = Part.merge(parts, alive)
    right = {}
    for part, kept in zip(parts, alive, strict=True):
        everything = describe(part)
        right |= {key: everything[key] for key in part.keys[kept].tolist()}
    assert merged.keys.tolist() == sorted(right)
    assert describe(merged) == right


def test_rounded_vectors_are_near_the_vectors(trees: OperatorForest) -> None:
    chance = np.random.default_rng(0)
    vectors = normalise(chance.normal(size=(500, 128)).astype(np.float32))
    vectors[3] = 0
    starts = np.zeros(501, np.int64)
    norms = np.zeros((500, COMPARED_FAMILIES), np.uint8)
    features = TreeFeatures(
        keys=np.arange(500),
        vectors=vectors,
        term_starts=starts,
        codes=np.zeros(0, np.uint32),
        norms=norms,
        operators=trees.select(np.zeros(500, np.int64)),
    )
    part = Part.build([features], EquationColumns(*np.zeros((4, 500), np.int64)))
    found = part.read_vectors(np.arange(500))
    np.testing.assert_allclose(found, vectors, atol=0.003)
    np.testing.assert_allclose(vectors[:9] @ found.T, vectors[:9] @ vectors.T, atol=0.005)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(chance=st.randoms(use_true_random=False))
def test_damaged_part_is_refused_when_it_is_opened(tmp_path: Path, trees: OperatorForest, chance: Random) -> None:
    entry = make_part(trees, np.arange(9), np.random.default_rng(1)).write(tmp_path)
    path = tmp_path / entry.file
    content = bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    replace_content(path, content[: chance.choice([len(content), len(content) - 1, 0])])
    with pytest.raises(CorruptData):
        Part.open(tmp_path, entry)


class FakeLibrary:
    """A library of keys without equations."""

    def __init__(self, folder: Path, keys: np.ndarray) -> None:
        self.folder = folder
        self.list_tree_keys = lambda: keys
        self.read_generation = lambda: 1


def test_search_in_several_parts_is_that_of_all_equations(tmp_path: Path, trees: OperatorForest) -> None:
    chance = np.random.default_rng(3)
    keys = np.cumsum(chance.integers(1, 4, MAX_ROWS + 3_000))
    (tmp_path / "index").mkdir()
    # the second part has keys between those of the first, as after a repair
    inside = np.zeros(len(keys), bool)
    inside[np.r_[100:200, MAX_ROWS + 100 : len(keys)]] = True
    parts = [make_part(trees, keys[~inside], chance), make_part(trees, keys[inside], chance)]
    entries = tuple(part.write(tmp_path / "index") for part in parts)
    live = keys[chance.random(len(keys)) < 0.9]
    manifest = IndexManifest(model="", dimensions=16, generation=1, parts=entries)
    index = Index(FakeLibrary(tmp_path, live), manifest)
    assert np.array_equal(index.keys, live) and index.missing == 0

    vectors = np.concatenate([part.read_vectors(np.arange(len(part))) for part in parts])
    every = np.concatenate([part.keys for part in parts])
    vectors = vectors[np.argsort(every)][np.isin(keys, live)]
    np.testing.assert_array_equal(index.get_vectors(live[::-7]), vectors[::-7])
    queries = normalise(chance.normal(size=(6, 16)).astype(np.float32))
    for some in (queries, queries[:1]):
        cosines, found = index.search_vectors(some, 50)
        right = np.argsort(-(some @ vectors.T), axis=1)[:, :50]
        np.testing.assert_allclose(cosines, np.take_along_axis(some @ vectors.T, right, axis=1), atol=1e-5)
        assert (found == live[right]).mean() > 0.97

    codes = np.arange(0, 280, 7, dtype=np.uint32)
    weights = np.arange(40, dtype=np.float32)
    scores, found = index.search_terms(codes, weights, 500, max_postings=10**9)
    sums = {key: terms.sum() / 7 for part in parts for key, terms in _list_terms(part).items()}
    factors = normalise_length(np.diff(index.get_operators(live).offsets))
    right = np.array([sums[key] for key in live.tolist()], np.float32) * factors
    order = np.lexsort((live, -right))[:500]
    np.testing.assert_array_equal(found, live[order])
    np.testing.assert_array_equal(scores, right[order])


def _list_terms(part: Part) -> dict[int, np.ndarray]:
    codes = np.repeat(part.codes, np.diff(part.starts)).astype(np.int64)
    order = np.argsort(part.rows, kind="stable")
    parts = np.split(codes[order], np.searchsorted(part.rows[order], np.arange(1, len(part))))
    return dict(zip(part.keys.tolist(), parts, strict=True))


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux what is mapped")
def test_readers_map_the_parts_and_never_change_them(atlas: Library, encoder: Encoder) -> None:
    update_index(atlas, encoder)
    manifest = IndexManifest.load(atlas.folder / "index")
    assert manifest is not None
    (entry,) = manifest.parts
    index = Index.open(atlas, encoder.digest)
    index.search_vectors(index.get_vectors(index.keys[:50]), 20)
    path = atlas.folder / "index" / entry.file
    mapped = [line for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith(str(path))]
    assert mapped and all(line.split()[1].startswith("r--") for line in mapped)
    assert not entry.find_problem(path)


def test_an_index_opened_again_shares_the_parts_that_stay(atlas: Library, encoder: Encoder) -> None:
    before = Index.open(atlas, encoder.digest)
    after = Index.open(atlas, encoder.digest, before)
    assert after._parts and all(after._parts[entry] is part for entry, part in before._parts.items())
