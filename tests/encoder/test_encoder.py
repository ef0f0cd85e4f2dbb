import asyncio
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eqkin
from eqkin.encoder import encoder
from eqkin.encoder.encoder import DEFAULT_MODEL, MODELS_FOLDER, Encoder, NumpyNetwork
from eqkin.encoder.model import Vocabulary
from eqkin.errors import BadInput, CorruptData, EqkinError
from eqkin.formulas import Forest
from tests.encoder.models import SMALL, SMALL_MIX, random_model, slow_embeddings
from tests.formulas.strategies import FORESTS, build

MODEL, MIX = random_model(), random_model(SMALL_MIX)
ENCODER = Encoder(MODEL)
MODELS = st.sampled_from([MODEL, MIX])
PAPER = "6b9baec2c624f25ee2d7c0b5ac9ae76526df925b9b3088f951f04480034a230a"  # a digest: what is indexed stays valid
FORMULAS = [
    "E = mc^2",
    r"$\frac{a}{b} + \sum_{i=0}^n x_i^2$",
    r"\[ \nabla\cdot E = \rho/\epsilon_0 \]",
    r"\begin{align*} a &= b \\ c &= \sin 12 \end{align*}",
    r"\begin{pmatrix} 1 & 2 & 3 \\ 4 & 5 & 6 \end{pmatrix}",
    r"\unheardof{x} = 1",
]


@pytest.fixture(scope="module")
def forest():
    return ENCODER.parse_formulas(FORMULAS)


def star(children):
    """Return a root with many children."""
    root = ("mrow", "", "", [("mi", "", "x", [])] * children)
    return build([root])


@given(FORESTS, MODELS)
def test_encoder_matches_the_formulas(trees, model):
    forest = build(trees)
    assert Encoder(model).embed(forest) == pytest.approx(slow_embeddings(model, forest), abs=1e-5)


@given(FORESTS, MODELS, st.integers(1, 12), st.integers(1, 4))
def test_vectors_do_not_depend_on_chunks_and_blocks(trees, model, nodes, blocks):
    forest, one = build(trees), Encoder(model)
    together = one.embed(forest)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NumpyNetwork, "chunk_nodes", nodes)
        patch.setattr(NumpyNetwork, "block_nodes", blocks * nodes)
        done = []
        assert one.embed(forest, progress=done.append) == pytest.approx(together, abs=1e-5)
    assert done == sorted(done)
    assert done[-1:] == ([len(forest)] if trees else [])
    for i in range(len(forest)):
        assert one.embed(forest.select([i])) == pytest.approx(together[i : i + 1], abs=1e-5)


@pytest.mark.parametrize("model", [MODEL, MIX], ids=["sum", "mix"])
def test_encoder_supports_thousands_of_children(model):
    forest = star(3_000)
    slow = slow_embeddings(model, forest)  # long: the root's sums have 3,001 terms, layer after layer
    assert Encoder(model).embed(forest) == pytest.approx(slow, abs=1e-5 * np.linalg.norm(slow))


@pytest.mark.parametrize("model", [MODEL, MIX], ids=["sum", "mix"])
def test_encoder_accepts_no_trees(model):
    empty, one = Forest.concatenate([]), Encoder(model)
    assert one.embed(empty).shape == (0, SMALL.dimensions)
    assert one.encode([]).shape == (0, SMALL.dimensions)


def test_unknown_symbols_share_the_last_slots(forest):
    model = random_model(vocabulary=Vocabulary((), (), ()))
    vectors = Encoder(model).encode(["x + y", "α - β"])
    assert np.isfinite(vectors).all()
    assert vectors[0] == pytest.approx(vectors[1], abs=1e-6)


def test_encoder_rejects_arrays_that_are_not_trees(forest):
    children = forest.n_children.copy()
    children[0] += 1
    damaged = Forest(
        forest.tags, forest.attributes, forest.texts, forest.tag, forest.attribute, forest.text, children,
        forest.offsets,
    )  # fmt: skip
    with pytest.raises(CorruptData, match="child counts"):
        ENCODER.embed(damaged)


def test_vector_of_a_formula_does_not_depend_on_the_batch():
    alone = ENCODER.encode([r"\unheardof{x} = 1"])
    together = ENCODER.encode([r"\def\a{b} \unheardof{x}{y} = \a", r"\unheardof{x} = 1"])
    assert together[1] == pytest.approx(alone[0], abs=1e-6)


def test_encode_names_the_unreadable_formula():
    with pytest.raises(BadInput, match=r"formula 1, '.*frac\{a', cannot be read: .* at character 8"):
        ENCODER.encode(["x", r"\frac{a"])


def test_encode_works_inside_an_event_loop_as_in_a_notebook():
    async def run_cell():
        return Encoder(ENCODER.model).encode(["x = 1"])

    np.testing.assert_array_equal(asyncio.run(run_cell()), ENCODER.encode(["x = 1"]))


def test_encode_returns_one_vector_for_a_single_formula():
    vector = ENCODER.encode("x = 1")
    assert vector.shape == (ENCODER.dimensions,)
    np.testing.assert_array_equal(vector, ENCODER.encode(["x = 1"])[0])
    assert ENCODER.similarity(vector, vector) == pytest.approx(1, abs=1e-6)
    with pytest.raises(BadInput, match="cannot be read"):
        ENCODER.encode(r"\frac{a")


@given(st.lists(st.text(max_size=30), max_size=3))
def test_any_text_gives_vectors_or_bad_input(texts):
    try:
        vectors = ENCODER.encode(texts)
    except EqkinError:
        return
    assert vectors.shape == (len(texts), SMALL.dimensions)
    assert np.isfinite(vectors).all()


def test_threads_can_share_an_encoder(forest):
    expected = ENCODER.encode(FORMULAS)
    with ThreadPoolExecutor(4) as executor:
        for vectors in executor.map(ENCODER.encode, [FORMULAS] * 8):
            assert (vectors == expected).all()


def test_encoder_loads_from_a_folder(tmp_path):
    MODEL.save(tmp_path / "model")
    loaded = eqkin.Encoder.load(tmp_path / "model")
    assert loaded.digest == ENCODER.digest
    assert loaded.dimensions == 8
    assert (loaded.encode(FORMULAS) == ENCODER.encode(FORMULAS)).all()


@pytest.mark.skipif(not MODELS_FOLDER.exists(), reason="the bundled models are not there")
def test_bundled_models_load_by_name():
    assert len({Encoder.load(name).digest for name in (None, DEFAULT_MODEL, MODELS_FOLDER / DEFAULT_MODEL)}) == 1
    assert DEFAULT_MODEL == ("eqkin" if (MODELS_FOLDER / "eqkin").exists() else "paper")
    assert Encoder.load("paper").model.recipe["name"] == "paper"
    assert Encoder.load("paper").digest == PAPER


@pytest.mark.parametrize("name", ["eqkin", "paper"])
def test_load_reports_missing_bundled_weights(name, tmp_path, monkeypatch):
    monkeypatch.setattr(encoder, "MODELS_FOLDER", tmp_path)
    for model in (name, None):
        with pytest.raises(CorruptData, match="installed without its weights"):
            Encoder.load(model)


def test_encoding_does_not_import_torch(tmp_path):
    MODEL.save(tmp_path)
    script = (
        "import sys, eqkin; assert eqkin.Encoder.load(sys.argv[1]).encode(['x = 1']).shape == (1, 8); "
        "assert not any(name.split('.')[0] == 'torch' for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, timeout=60)
