"""Runs of the recipe "paper" with tiny networks on a CPU: results, stopping, resuming, errors."""

# ruff: noqa: E402
from __future__ import annotations

import io
import os
import shutil
import signal
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'eqkin[train]'")

from eqkin.cli import main
from eqkin.encoder.encoder import Encoder
from eqkin.encoder.model import Model, Vocabulary
from eqkin.errors import BadInput, LibraryBusy, TrainingFailed
from eqkin.learning.checkpoint import METRICS_FILE, load_checkpoint, read_metrics, save_checkpoint
from eqkin.learning.config import (
    LoggingConfig,
    Recipe,
    get_recipe,
)
from eqkin.learning.data import Corpus
from eqkin.learning.run import MODEL_FOLDER, HeldOutEvaluator, TrainingResult, train
from eqkin.learning.torch_network import SumNetwork
from eqkin.learning.trainer import TrainingProgress

TINY = {"width": "16", "batch": "4", "triplets": "48", "warm_up": "3", "learning_rate": "3e-3", "held_out": "0.25"}
LOGGING = LoggingConfig(log_steps=4, score_steps=6, score_triples=200, final_triples=400)
FEW_SCORES = replace(LOGGING, score_steps=1_000)  # one at the end


def tiny(**settings: str) -> Recipe:
    return get_recipe("paper").override(TINY | settings)


def run(
    corpus: Corpus,
    folder: Path,
    recipe: Recipe | None = None,
    *,
    resume: bool = False,
    stop_at: int = 0,
    logging: LoggingConfig = LOGGING,
) -> TrainingResult:
    """Run, stopping after a step if requested."""
    reached: list[int] = []

    def note(progress: TrainingProgress) -> None:
        reached.append(progress.step)

    return train(
        corpus,
        recipe or tiny(),
        folder,
        device="cpu",
        logging=logging,
        on_progress=note,
        should_stop=lambda: bool(stop_at and reached and reached[-1] >= stop_at),
        resume=resume,
    )


def curve(folder: Path) -> list[dict[str, float]]:
    """Return the metrics without timings."""
    timed = {"seconds", "triplets_per_second"}
    return [{k: v for k, v in record.items() if k not in timed} for record in read_metrics(folder)]


@pytest.fixture(scope="module")
def whole(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an uninterrupted run."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    assert run(corpus, folder).finished
    return folder


def test_tiny_network_learns_to_rank_held_out_papers(atlas_corpus: Corpus, tmp_path: Path) -> None:
    recipe = tiny(width="32", batch="32", triplets="1600", warm_up="10")
    learn, held_out = atlas_corpus.split(recipe.held_out, recipe.seed)
    measured = HeldOutEvaluator(held_out, Vocabulary.learn([learn.forest]), recipe, torch.device("cpu"))
    torch.manual_seed(0)
    before = measured.score(SumNetwork(recipe.architecture), 4_000).score
    outcome = run(atlas_corpus, tmp_path, recipe, logging=FEW_SCORES)
    assert outcome.ranking is not None
    model = Model.load(tmp_path / MODEL_FOLDER)
    after = measured.score(SumNetwork.from_weights(model.architecture, model.weights), 4_000).score
    assert after > before + 0.02
    losses = [record["loss"] for record in read_metrics(tmp_path) if "loss" in record]
    assert losses[-1] < 0.7 * losses[0]


def test_saved_model_contains_recipe_and_scores(whole: Path) -> None:
    model = Model.load(whole / MODEL_FOLDER)
    assert Recipe.from_dict(model.recipe) == tiny()
    ranking = model.training["held_out_ranking"]
    assert ranking["low"] <= ranking["score"] <= ranking["high"]
    assert ranking["triples"] == LOGGING.final_triples
    assert {"heads.tag.weight", "heads.character.bias"} <= model.weights.keys()


def test_metrics_contain_losses_and_ranking_with_interval(whole: Path) -> None:
    records = curve(whole)
    assert [r["step"] for r in records if "loss" in r] == [4, 8, 12]
    rankings = [r for r in records if "ranking" in r]
    assert [r["step"] for r in rankings] == [6, 12]
    assert all(r["low"] <= r["ranking"] <= r["high"] for r in rankings)
    assert all(r["loss"] == pytest.approx(r["similarity"] + r["masking"]) for r in records if "loss" in r)


@pytest.mark.parametrize("stop_at", [1, 5, 6, 11])
def test_resumed_run_has_the_same_metrics_and_weights(
    stop_at: int, whole: Path, corpus: Corpus, tmp_path: Path
) -> None:
    stopped = run(corpus, tmp_path, stop_at=stop_at)
    assert (stopped.finished, stopped.step, stopped.model) == (False, stop_at, None)
    assert run(corpus, tmp_path, resume=True).finished
    assert curve(tmp_path) == curve(whole)
    assert Model.load(tmp_path / MODEL_FOLDER).digest == Model.load(whole / MODEL_FOLDER).digest


def test_resuming_without_a_checkpoint_starts_from_the_beginning(whole: Path, corpus: Corpus, tmp_path: Path) -> None:
    (tmp_path / METRICS_FILE).write_text(
        '{"step": 3, "loss": 1.0}\n{"st'
    )  # of a run killed before its first checkpoint
    assert run(corpus, tmp_path, resume=True).finished
    assert curve(tmp_path) == curve(whole)


def test_run_does_not_overwrite_another_run(whole: Path, corpus: Corpus) -> None:
    with pytest.raises(BadInput, match="--resume"):
        run(corpus, whole)


def test_run_is_not_resumed_with_another_recipe_or_corpus(whole: Path, corpus: Corpus) -> None:
    with pytest.raises(BadInput, match="different recipe"):
        run(corpus, whole, tiny(masking="0"), resume=True)
    with pytest.raises(BadInput, match="different corpus"):
        run(corpus.select(range(7)), whole, resume=True)


def test_two_runs_cannot_share_a_folder(corpus: Corpus, tmp_path: Path) -> None:
    refused: list[Exception] = []

    def second(progress: TrainingProgress) -> None:
        if not refused:
            with pytest.raises(LibraryBusy) as caught:
                run(corpus, tmp_path, resume=True)
            refused.append(caught.value)

    train(corpus, tiny(), tmp_path, device="cpu", logging=LOGGING, on_progress=second)
    assert str(os.getpid()) in str(refused[0])


def test_nan_loss_stops_the_run_and_names_step_and_batch(corpus: Corpus, tmp_path: Path) -> None:
    run(corpus, tmp_path, stop_at=5)
    saved = load_checkpoint(tmp_path)
    assert saved is not None
    saved.arrays["model.network.first.weight"][0, 0] = np.nan
    save_checkpoint(tmp_path, saved.arrays, saved.facts)
    with pytest.raises(TrainingFailed, match=r"at step 5: .*nan.*12 equations: atlas:.*checkpoint of step 5"):
        run(corpus, tmp_path, resume=True)
    again = load_checkpoint(tmp_path)
    assert again is not None and again.facts["step"] == 5


def test_nan_weights_never_replace_a_checkpoint(corpus: Corpus, tmp_path: Path) -> None:
    run(corpus, tmp_path, stop_at=5)
    saved = load_checkpoint(tmp_path)
    assert saved is not None
    saved.arrays["adam.exp_avg.heads.tag.bias"][0] = np.nan  # the next step's loss does not show it
    save_checkpoint(tmp_path, saved.arrays, saved.facts)
    with pytest.raises(TrainingFailed, match=r"at step 5: model\.heads\.tag\.bias"):
        run(corpus, tmp_path, resume=True, stop_at=6)
    again = load_checkpoint(tmp_path)
    assert again is not None and again.facts["step"] == 5


@pytest.mark.parametrize(
    "settings",
    [
        {"loss": "triplet"},
        {"masking": "0"},
        {"transpositions": "0"},
        {"layers": "1", "normalised": "", "dimensions": "8"},
    ],
)
def test_each_part_of_a_recipe_can_be_switched_off(settings: dict[str, str], corpus: Corpus, tmp_path: Path) -> None:
    outcome = run(corpus, tmp_path, tiny(triplets="12", **settings))
    assert outcome.finished
    assert len(Encoder.load(tmp_path / MODEL_FOLDER).encode(["x"])) == 1


class StopAtFirstReport(io.StringIO):
    """A standard error whose first line about the progress makes someone send SIGTERM."""

    def write(self, text: str) -> int:
        if "triplets" in text and "triplets" not in self.getvalue():
            signal.raise_signal(signal.SIGTERM)
        return super().write(text)


def test_sigterm_saves_the_run(corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus.save(tmp_path / "corpus.zst")
    settings = "--recipe paper --set width=16 --batch 4 --triplets 4000 --set held_out=0.25 --device cpu".split()
    monkeypatch.setattr("sys.argv", ["eqkin", "train", str(tmp_path / "corpus.zst"), "-o", str(tmp_path), *settings])
    ignored: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: ignored.append(number))
    out = io.StringIO()
    try:
        with pytest.raises(SystemExit) as ended, redirect_stdout(out), redirect_stderr(StopAtFirstReport()):
            main()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert not ignored and ended.value.code == 128 + signal.SIGTERM
    assert "--resume" in out.getvalue()
    saved = load_checkpoint(tmp_path)
    assert saved is not None and 0 < saved.facts["step"] < 1000


def test_killed_run_continues_from_its_last_checkpoint(whole: Path, corpus: Corpus, tmp_path: Path) -> None:
    run(corpus, tmp_path / "run", stop_at=7)
    killed = tmp_path / "killed"

    def copy_files(progress: TrainingProgress) -> None:
        if progress.step == 10:  # what a killed process would leave
            shutil.copytree(tmp_path / "run", killed)

    train(
        corpus,
        tiny(),
        tmp_path / "run",
        device="cpu",
        resume=True,
        logging=LOGGING,
        on_progress=copy_files,
        should_stop=killed.exists,
    )
    # what came after the checkpoint is dropped and learned again
    assert read_metrics(killed)[-1]["step"] == 8
    assert run(corpus, killed, resume=True).finished
    assert curve(killed) == curve(whole)
    assert Model.load(killed / MODEL_FOLDER).digest == Model.load(whole / MODEL_FOLDER).digest
