import json
import pickle

import numpy as np
import pytest
from safetensors import numpy as safetensors

from eqkin.encoder.model import Architecture, Model, Vocabulary
from eqkin.errors import CorruptData
from tests.encoder.models import SMALL_MIX, VOCABULARY, random_model

MODEL, MIX = random_model(), random_model(SMALL_MIX)


@pytest.fixture
def folder(tmp_path):
    MODEL.save(tmp_path)
    return tmp_path


def describe(folder, **changes):
    """Change entries of model.json."""
    path = folder / "model.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def replace_weights(folder, weights):
    """Replace the weights by bytes or tensors, with the right hash."""
    import hashlib

    content = weights if isinstance(weights, bytes) else safetensors.save(weights)
    (folder / "weights.safetensors").write_bytes(content)
    hashes = json.loads((folder / "model.json").read_text())["sha256"]
    describe(folder, sha256=hashes | {"weights.safetensors": hashlib.sha256(content).hexdigest()})


def test_model_survives_save_and_load(tmp_path):
    extra = {"heads.tag.weight": np.ones((32, 24), np.float32)}
    model = Model(MODEL.architecture, VOCABULARY, MODEL.weights | extra, {"steps": 3}, {"ranking": 76.5})
    model.save(tmp_path / "new" / "folder")
    loaded = Model.load(tmp_path / "new" / "folder")
    assert (loaded.architecture, loaded.vocabulary) == (model.architecture, model.vocabulary)
    assert (loaded.recipe, loaded.training) == ({"steps": 3}, {"ranking": 76.5})
    assert loaded.weights.keys() == model.weights.keys()
    assert all((loaded.weights[name] == model.weights[name]).all() for name in model.weights)
    assert all(loaded.weights[name].shape == model.weights[name].shape for name in model.weights)
    assert loaded.digest == model.digest == MODEL.digest


def test_digest_distinguishes_models():
    changed = {name: array.copy() for name, array in MODEL.weights.items()}
    changed["layers.1.bias"][3] += 1
    others = [
        Model(MODEL.architecture, VOCABULARY, changed),
        Model(MODEL.architecture, Vocabulary(VOCABULARY.tags[::-1], (), ()), MODEL.weights),
        Model(Architecture(24, 3, (0,), 8), VOCABULARY, MODEL.weights),
        random_model(seed=1),
    ]
    assert len({MODEL.digest, *(other.digest for other in others)}) == 5
    assert len(MODEL.digest) == 64


@pytest.mark.parametrize(
    "changes",
    [
        {"format": "other"},
        {"version": 2},
        {"architecture": {"width": 24}},
        {"architecture": {"width": 0, "normalised": []}},
        {"architecture": {"width": "24", "normalised": []}},
        {"architecture": {"layers": 2, "normalised": [2]}},
        {"architecture": {"kind": "blend", "normalised": []}},
        {"architecture": {"kind": ["mix"], "normalised": []}},
        {"architecture": {"depth": 2, "normalised": [2]}},
        {"recipe": None},
        {"sha256": {}},
    ],
)
def test_load_rejects_foreign_descriptions(folder, changes):
    describe(folder, **changes)
    with pytest.raises(CorruptData, match="model.json: "):
        Model.load(folder)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000, b"3", b'{"format": "eqkin-model"}'])
def test_load_rejects_damaged_descriptions(folder, content):
    (folder / "model.json").write_bytes(content)
    with pytest.raises(CorruptData, match=r"model.json: not a description of a model"):
        Model.load(folder)


@pytest.mark.parametrize("name", ["weights.safetensors", "vocabulary.json"])
def test_load_names_a_missing_file(folder, name):
    (folder / name).unlink()
    with pytest.raises(CorruptData, match=f"{name}: missing"):
        Model.load(folder)


@pytest.mark.parametrize("at", [0, 7, 9, 200, -1])
def test_load_detects_a_flipped_byte(folder, at):
    content = bytearray((folder / "weights.safetensors").read_bytes())
    content[at] ^= 0x10
    (folder / "weights.safetensors").write_bytes(content)
    with pytest.raises(CorruptData, match=r"weights.safetensors: its hash is not the one in model.json"):
        Model.load(folder)


@pytest.mark.parametrize("kept", [0, 5, 9, 500, -1])
def test_load_rejects_truncated_weights(folder, kept):
    content = (folder / "weights.safetensors").read_bytes()[:kept]
    (folder / "weights.safetensors").write_bytes(content)
    with pytest.raises(CorruptData, match=r"weights.safetensors: (not a safetensors file|its hash)"):
        Model.load(folder)
    replace_weights(folder, content)
    with pytest.raises(CorruptData, match=r"weights.safetensors: not a (readable )?safetensors file"):
        Model.load(folder)


def test_load_never_reads_pickles(folder):
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        replace_weights(folder, pickle.dumps({"first.alpha": 1.0}, protocol))
        with pytest.raises(CorruptData, match=r"weights.safetensors: not a safetensors file"):
            Model.load(folder)


def test_load_rejects_another_vocabulary(folder):
    Vocabulary(("mi",), (), ("x",)).save(folder / "vocabulary.json")
    with pytest.raises(CorruptData, match=r"the vocabulary is not the one the weights were trained with"):
        Model.load(folder)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("first.weight", np.zeros((24, 255), np.float32), r"first.weight is float32 \(24, 255\), expected float32"),
        ("first.alpha", np.zeros(1, np.float32), r"first.alpha is float32 \(1,\), expected float32 \(\)"),
        ("output.bias", np.zeros(8, np.float64), r"output.bias is float64 \(8,\), expected float32 \(8,\)"),
        ("layers.1.bias", np.full(24, np.nan, np.float32), "layers.1.bias contains a number that is not finite"),
        ("layers.1.weight", np.full((24, 24), np.inf, np.float32), "layers.1.weight contains a number that is not"),
        ("layers.0.norm.variance", np.full(24, -1, np.float32), "layers.0.norm.variance contains a negative variance"),
        ("soft_norm.mean", np.array(-9, np.float32), "the soft norm is not positive"),
    ],
)
def test_load_and_save_name_wrong_weights(folder, tmp_path, name, array, message):
    replace_weights(folder, MODEL.weights | {name: array})
    with pytest.raises(CorruptData, match=message):
        Model.load(folder)
    with pytest.raises(CorruptData, match=message):
        Model(MODEL.architecture, VOCABULARY, MODEL.weights | {name: array}).save(tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("done", [1, 2])
def test_interrupted_save_is_never_loaded(folder, tmp_path, done):
    other = random_model(seed=1, vocabulary=Vocabulary(("mi",), (), ("x",)))
    other.save(tmp_path / "other")
    for name in ("weights.safetensors", "vocabulary.json")[:done]:  # in the order of `save`
        (folder / name).write_bytes((tmp_path / "other" / name).read_bytes())
    with pytest.raises(CorruptData):
        Model.load(folder)
