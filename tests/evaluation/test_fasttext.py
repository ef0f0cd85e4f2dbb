"""fastText: vectors of labels, means of them, and files without fastText's own format."""

import subprocess
import sys

import fasttext
import numpy as np
import pytest

from eqkin.errors import BadInput, CorruptData
from eqkin.evaluation.formulas import FormulaSet
from eqkin.evaluation.systems.fasttext import FastText, FastTextSettings
from eqkin.evaluation.systems.sparse import serialize
from tests.evaluation.formulas import formulas, list_lines
from tests.learning.corpora import corpus_of
from tests.trees.strategies import build

SMALL = FastTextSettings(dimensions=8, epochs=3, least=2, frequent=1.0)
CORPUS = corpus_of([[20, 30], [50]])


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fasttext")
    system = FastText(SMALL)
    system.fit(CORPUS, folder)
    return system, folder


def test_fasttext_fit_is_reproducible(learned, tmp_path):
    again = FastText(SMALL)
    again.fit(CORPUS, tmp_path)
    given = FormulaSet(CORPUS.forest)
    assert np.array_equal(again.encode(given), learned[0].encode(given))
    assert np.isfinite(again.encode(given)).all()


def test_fasttext_fit_depends_on_seed(learned, tmp_path):
    other = FastText(FastTextSettings(dimensions=8, epochs=3, least=2, frequent=1.0, seed=1))
    other.fit(CORPUS, tmp_path)
    given = FormulaSet(CORPUS.forest)
    assert np.abs(other.encode(given) - learned[0].encode(given)).max() > 1e-3


def test_fasttext_fit_loads_without_fasttext_installed(learned):
    system, folder = learned
    assert sorted(path.name for path in folder.iterdir()) == ["fasttext.safetensors"]
    code = (
        "import sys; sys.modules['fasttext'] = None\n"
        "from pathlib import Path\n"
        "from eqkin.evaluation.systems.fasttext import FastText, FastTextSettings\n"
        "from eqkin.evaluation.formulas import FormulaSet\n"
        "from tests.learning.corpora import corpus_of\n"
        "corpus = corpus_of([[20, 30], [50]])\n"
        "system = FastText(FastTextSettings(dimensions=8, epochs=3, least=2, frequent=1.0))\n"
        "system.fit(corpus, Path(sys.argv[1]))\n"
        "sys.stdout.buffer.write(system.encode(FormulaSet(corpus.forest)).tobytes())\n"
    )
    loaded = subprocess.run([sys.executable, "-c", code, folder], stdout=subprocess.PIPE, check=True).stdout
    assert np.array_equal(np.frombuffer(loaded, np.float32).reshape(-1, 8), system.encode(FormulaSet(CORPUS.forest)))


def test_fasttext_encoding_equals_sentence_vector(tmp_path):
    """Its own mean, over words it learned from the same text; with fewer threads it leaves some vectors undrawn."""
    sequences = serialize(CORPUS.forest)
    text = tmp_path / "text"
    text.write_text("\n".join(list_lines(sequences)) + "\n")
    theirs = fasttext.train_unsupervised(str(text), dim=8, minn=0, maxn=0, minCount=2, epoch=1, thread=12, verbose=0)
    system = FastText(SMALL)
    system.fit(CORPUS, tmp_path)
    words = list(system._words)
    vectors = np.array([theirs.get_word_vector(word) for word in words], np.float32)
    system._vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    expected = [theirs.get_sentence_vector(line) for line in list_lines(sequences)]
    np.testing.assert_allclose(system.encode(FormulaSet(CORPUS.forest)), expected, atol=1e-5)


def test_fasttext_ignores_unknown_labels(learned):
    system, _ = learned
    known, mixed, strange = system.encode(FormulaSet(build([
        ("mi", "", "a", []), ("mi", "", "a", [("mi", "", "☃", [])]), ("mi", "", "☃", [])
    ])))  # fmt: skip
    assert np.array_equal(known, mixed)
    assert known.any()
    assert not strange.any()


def test_fasttext_rejects_encoding_before_fit_and_rare_labels(tmp_path):
    with pytest.raises(BadInput, match="call fit first"):
        FastText(SMALL).encode(formulas("x"))
    with pytest.raises(BadInput, match="occurs 1000 times"):
        FastText(FastTextSettings(least=1_000)).fit(CORPUS, tmp_path)
    assert not list(tmp_path.iterdir())


def test_fasttext_rejects_damaged_files(learned, tmp_path):
    content = (learned[1] / "fasttext.safetensors").read_bytes()
    for damaged in (b"{}", content.replace(b"mi:", b"mj:", 1), content[:-4] + b"\0\0\0" + content[-1:]):
        (tmp_path / "fasttext.safetensors").write_bytes(damaged)
        with pytest.raises(CorruptData, match="delete it to fit again"):
            FastText(SMALL).fit(CORPUS, tmp_path)
