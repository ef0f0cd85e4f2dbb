import numpy as np
import pytest

from eqkin import Encoder
from eqkin.encoder.onnx import export_onnx, make_inputs

runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
FORMULAS = [r"E = mc^2", r"x", r"\sum_{i<j} J_{ij} s_i s_j", r"\begin{pmatrix} a & b \\ c & d \end{pmatrix}"]


@pytest.mark.parametrize("name", [None, "paper"])
def test_an_exported_network_gives_the_same_vectors(tmp_path, name):
    encoder = Encoder.load(name)
    export_onnx(encoder.model, tmp_path / "encoder.onnx")
    session = runtime.InferenceSession(tmp_path / "encoder.onnx")
    forest = encoder.parse_formulas(FORMULAS)
    (vectors,) = session.run(None, make_inputs(forest, encoder.model.vocabulary))
    np.testing.assert_allclose(vectors, encoder.embed(forest), atol=1e-4)
    one = encoder.parse_formulas(FORMULAS[:1])
    (alone,) = session.run(None, make_inputs(one, encoder.model.vocabulary))
    np.testing.assert_allclose(alone[0], vectors[0], atol=1e-4)
    assert session.get_modelmeta().custom_metadata_map["digest"] == encoder.digest
