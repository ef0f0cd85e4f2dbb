"""eqkin's networks as systems, and the registry of all systems."""

import os
import subprocess
import sys

import numpy as np
import pytest

from eqkin.encoder.architecture import Architecture
from eqkin.encoder.encoder import Encoder
from eqkin.errors import BadInput
from eqkin.evaluation.context import SMALL_SCALE, ExperimentContext, ResultCache
from eqkin.evaluation.systems.base import EmbeddingSystem
from eqkin.evaluation.systems.networks import NetworkSystem, UntrainedNetwork
from eqkin.evaluation.systems.registry import SYSTEMS, make_systems
from tests.evaluation.formulas import formulas
from tests.learning.corpora import corpus_of

SHAPE = Architecture(width=16, dimensions=8)
CORPUS = corpus_of([[6], [4]])


@pytest.fixture(scope="module")
def some():
    return formulas(r"a^2 + b^2 = c^2", r"e^{i\pi} + 1 = 0", r"\int_0^1 f(x) \, dx")


def test_network_system_gives_vectors_of_the_encoder(some):
    system = NetworkSystem("paper", "Graph network", device="cpu")
    assert np.array_equal(system.encode(some), Encoder.load().embed(some.forest))
    assert system.settings == {}
    assert system.learned_from == Encoder.load().digest


def test_network_system_ranks_by_cosine(some):
    vectors = Encoder.load().embed(some.forest)
    lengths = np.linalg.norm(vectors, axis=1)
    cosine = NetworkSystem("a", "A", device="cpu").rank(some, some)
    np.testing.assert_allclose(cosine, vectors @ vectors.T / np.outer(lengths, lengths), atol=1e-5)


def test_network_system_rejects_folder_without_model(tmp_path):
    with pytest.raises(BadInput, match="contains no model"):
        NetworkSystem("own", "Own", tmp_path)


def test_untrained_network_is_the_same_every_time(tmp_path, some):
    first, same = (UntrainedNetwork(SHAPE, device="cpu") for _ in range(2))
    with pytest.raises(BadInput, match="call fit first"):
        first.encode(some)
    for number, system in enumerate((first, same)):
        system.fit(CORPUS, tmp_path / str(number))
    assert first.encode(some).shape == (3, 8)
    assert np.array_equal(first.encode(some), same.encode(some))


def test_untrained_network_loads_earlier_fit(tmp_path, some):
    first, again = UntrainedNetwork(SHAPE, device="cpu"), UntrainedNetwork(SHAPE, device="cpu")
    first.fit(CORPUS, tmp_path)
    again.fit(corpus_of([[1]]), tmp_path)
    assert np.array_equal(first.encode(some), again.encode(some))
    assert Encoder.load(tmp_path).dimensions == 8


def test_registry_makes_every_system_at_the_given_scale(tmp_path):
    context = ExperimentContext(ResultCache(tmp_path), SMALL_SCALE, "cpu")
    made = make_systems(list(SYSTEMS), context)
    assert [system.name for system in made] == list(SYSTEMS)
    assert len({system.title for system in made}) == len(made)
    assert [system.name for system in made if system.needs_latex] == ["tfidf-latex", "approach0"]
    sizes = {system.name: system.settings for system in made}
    assert sizes["untrained"]["architecture"]["width"] == SMALL_SCALE.width
    assert sizes["fasttext"]["epochs"] == SMALL_SCALE.fasttext_epochs
    assert make_systems(["untrained"])[0].settings["architecture"]["width"] == 512


def test_systems_are_fitted_through_the_cache_and_rank(tmp_path, some):
    reported = []
    context = ExperimentContext(ResultCache(tmp_path), SMALL_SCALE, "cpu", reported.append)
    names = ["untrained", "bag-of-words", "fasttext"]
    corpus = corpus_of([[40], [40]])
    scores = [context.fit(system, corpus).rank(some, some) for system in make_systems(names, context)]
    again = [context.fit(system, corpus).rank(some, some) for system in make_systems(names, context)]
    assert len(list((tmp_path / "fitted").iterdir())) == 3
    assert all(np.array_equal(one, other) for one, other in zip(scores, again, strict=True))
    assert any("Bag of words" in line for line in reported)


def test_registry_makes_network_from_its_folder(tmp_path, some):
    folder = tmp_path / "my run_2"
    UntrainedNetwork(SHAPE).fit(CORPUS, folder)
    (own,) = make_systems([str(folder)])
    assert own.name == "my-run-2"
    assert isinstance(own, EmbeddingSystem)
    assert own.encode(some).shape == (3, 8)


def test_registry_names_networks_after_their_runs(tmp_path):
    for run in "ab":
        UntrainedNetwork(SHAPE).fit(CORPUS, tmp_path / run / "model")
    assert [own.name for own in make_systems([str(tmp_path / "a"), str(tmp_path / "b" / "model")])] == ["a", "b"]
    with pytest.raises(BadInput, match="two systems are called a: rename"):
        make_systems([str(tmp_path / "a"), str(tmp_path / "a" / "model")])


def test_registry_rejects_unknown_and_repeated_names():
    with pytest.raises(BadInput, match="unknown system 'word2vec'; choose from eqkin, eqkin-vector, paper, untrained"):
        make_systems(["paper", "word2vec"])
    with pytest.raises(BadInput, match="two systems are called tree-pairs"):
        make_systems(["tree-pairs", "tree-pairs"])


def test_missing_library_is_named_with_its_extra():
    code = (
        "import sys; sys.modules['sklearn.feature_extraction.text'] = None\n"
        "from eqkin.evaluation.systems.registry import make_systems\n"
        "from tests.evaluation.formulas import formulas\n"
        "from eqkin.errors import BadInput\n"
        "try: make_systems(['tree-pairs'])[0].rank(formulas('x'), formulas('x'))\n"
        "except BadInput as error: assert \"pip install 'eqkin[eval]'\" in str(error), error\n"
        "else: raise SystemExit('not noticed')\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], env=environment).returncode == 0
