"""`eqkin evaluate tune` as a user meets it."""

from __future__ import annotations

import pytest

pytest.importorskip("sklearn", reason="tuning needs scikit-learn: pip install 'eqkin[eval]'")
pytest.importorskip("torch", reason="learning needs torch: pip install 'eqkin[train]'")

from eqkin.search.rerank import Ranker  # noqa: E402
from tests.cli.running import eqkin  # noqa: E402
from tests.cli.test_evaluate import judged_folder, labelled_file  # noqa: E402


def test_weights_are_written_and_scores_of_what_was_left_out_told(tmp_path):
    sets = ["--judged", judged_folder(tmp_path / "tiny"), "--labelled", labelled_file(tmp_path), "--no-atlas"]
    found = eqkin("evaluate", "tune", tmp_path / "weights", *sets, "--trees", "3", "--json").json
    assert found["file"] == str(tmp_path / "weights")
    assert {one["given"] for one in found["scores"]} == {"tiny", "mine"}
    Ranker.load(tmp_path / "weights")
    ended = eqkin("evaluate", "tune", tmp_path / "weights", *sets, "--trees", "3")
    assert "weights written to" in ended.err
    assert [line.split()[:2] for line in ended.out.splitlines()] == [
        ["tiny", "nDCG'"], ["tiny", "MAP'"], ["tiny", "P'@10"], ["tiny", "bpref"], ["mine", "accuracy"],
        ["mine", "ranking"],
    ]  # fmt: skip


def test_sets_are_needed_and_need_names_of_their_own(tmp_path):
    ended = eqkin("evaluate", "tune", tmp_path / "weights", "--no-atlas")
    assert ended.code == 3 and "give --judged or --labelled sets" in ended.err
    file = labelled_file(tmp_path)
    ended = eqkin("evaluate", "tune", tmp_path / "weights", "--labelled", file, "--labelled", file, "--no-atlas")
    assert ended.code == 3 and "2 sets are called mine" in ended.err
    assert not (tmp_path / "weights").exists()
