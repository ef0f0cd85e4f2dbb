"""`eqkin finetune`: train a network to find the other side of an equality."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from eqkin.cli.console import emit
from eqkin.cli.evaluate import open_progress
from eqkin.cli.options import AsJson, LibraryFolder
from eqkin.cli.train import CorpusFile, load_corpus, require_torch
from eqkin.errors import BadInput


def finetune(
    library: LibraryFolder,
    corpus: CorpusFile = None,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder to write the network to.")] = Path(
        "finetuned"
    ),
    model: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Network to start from.", show_default="the bundled one")
    ] = None,
    pairs: Annotated[str, typer.Option(help="equalities, inequalities, or relations: both and similar signs.")] = (
        "relations"
    ),
    held_out: Annotated[float, typer.Option(help="Share of test pairs, split by work.")] = 0.2,
    batch: Annotated[int, typer.Option(min=2, help="Pairs per step; all other pairs of a step are negatives.")] = 1_024,
    epochs: Annotated[int, typer.Option(min=1, help="Maximum; the best number on validation pairs is used.")] = 20,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto: a GPU if there is one.")] = "auto",
    as_json: AsJson = False,
) -> None:
    """Train a network to find the other side of an equality, on the equalities of a library (InfoNCE).

    Equations are split at their relation signs into sides of similar size. Most pairs are trained on, some choose
    learning rate and epochs, the rest is for testing: how often the other side is found, before and after, with
    intervals over works. The folder works with `eqkin rank --model`, `eqkin evaluate` and `eqkin.Encoder.load`.

    **Examples**

        eqkin finetune -l corpus --out finetuned

        eqkin finetune corpus.zst --pairs equalities --batch 4096 --device cuda
    """
    require_torch()
    from eqkin.training.distributed import require_single_process

    require_single_process("finetuning")
    if out.exists() and not out.is_dir():
        raise BadInput(f"{out} is a file, but the network needs a folder: choose another name")
    from eqkin.evaluation.finetune import finetune_model
    from eqkin.evaluation.tables import format_score
    from eqkin.training.finetuning import FinetuningConfig

    with open_progress(as_json) as log:
        found = finetune_model(
            load_corpus(corpus, library), out, model=model, pairs=pairs, held_out=held_out,
            settings=FinetuningConfig(batch=batch, epochs=epochs), device=device, log=log,
        )  # fmt: skip

    def render() -> None:
        typer.echo(f"finetuned on {found.learned:,} pairs, tested on {found.tested:,} others:")
        for key, score in found.before.items():
            before, after = format_score(score, "share"), format_score(found.after[key], "share")
            typer.echo(f"  R@{key[1:]:4} {before} before, {after} after")
        typer.echo(f"the network is in {found.model}")

    emit(asdict(found) | {"model": str(found.model), "choice": found.choice.to_dict()}, as_json, render)
