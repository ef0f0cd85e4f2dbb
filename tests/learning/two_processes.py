"""The processes of `test_distributed`: this module starts two, which share its imports, as torchrun would.

Each process writes its results to a folder; at the end the second process kills itself.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch

from eqkin.errors import EqkinError
from eqkin.formulas import Vocabulary
from eqkin.learning import sampling
from eqkin.learning.checkpoint import load_checkpoint, save_checkpoint
from eqkin.learning.config import LoggingConfig, Recipe, get_recipe
from eqkin.learning.data import Corpus
from eqkin.learning.distributed import SINGLE_PROCESS, ProcessGroup, join_process_group
from eqkin.learning.objective import build_training_data
from eqkin.learning.run import TrainingResult, TrainingRun
from eqkin.learning.trainer import RecipeTrainer

CPU = torch.device("cpu")
FAST_DIMENSIONS = 64  # dimensions in which kin are searched for, which takes less time
STEPS = 8
SMALL = {
    "width": "16", "layers": "3", "dimensions": "16", "batch": "8", "triplets": str(8 * STEPS), "warm_up": "3",
    "learning_rate": "1e-4", "held_out": "0.25",
}  # fmt: skip
WEIGHTS = {"structure_weight": "1", "context_weight": "0.3"}
RECIPES = {
    "histogram": get_recipe("paper").override(SMALL),
    "triplet": get_recipe("paper").override(SMALL | {"loss": "triplet", "normalised": "1", "renamed": "0.5"}),
    "kin": get_recipe("eqkin").override(SMALL | WEIGHTS | {"renamed": "0.3"}),
    "kin of sums": get_recipe("eqkin").override(SMALL | WEIGHTS | {"kind": "sum", "normalised": "0,2"}),
}
RESUMED = RECIPES["histogram"].override({"averaged": "0.5", "weight_decay": "0.01", "kind": "mix"})
KILLED_AT = 5
LOGGING = LoggingConfig(log_steps=2, score_steps=5, score_triples=200, final_triples=400)


def steps(corpus: Corpus, recipe: Recipe, group: ProcessGroup = SINGLE_PROCESS) -> dict[str, np.ndarray]:
    """Return the losses of all steps, and the final state."""
    learn, _ = corpus.split(recipe.held_out, recipe.split_seed)
    training_data = build_training_data(learn, Vocabulary.learn([learn.forest]), recipe, CPU, group)
    trainer = RecipeTrainer(recipe, training_data, compiled=False, captured=False, group=group)
    losses = np.concatenate([trainer.train_steps(1) for _ in range(recipe.steps)])
    return {"losses": losses, "kin": training_data.sampler.draw(torch.zeros(1, 1).long(), 64).negative.numpy()} | (
        trainer.get_state()
    )


def numbers(rank: int) -> torch.Tensor:
    """Return the tensor of a process."""
    return torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(rank)).requires_grad_()


def loss_of_sums(x: torch.Tensor, everyone: torch.Tensor, total: torch.Tensor, rank: int) -> torch.Tensor:
    """Compute a loss of one process that depends on the tensors of all."""
    return (everyone.sin() @ x.T).square().sum() * (rank + 1) + (total.exp() * x).sum()


def _sums(group: ProcessGroup) -> dict[str, np.ndarray]:
    x = numbers(group.rank)
    everyone, total = group.all_gather(x, 3), group.all_reduce(x.mean(0))
    loss_of_sums(x, everyone, total, group.rank).backward()
    assert x.grad is not None
    found = {
        "everyone": everyone,
        "total": total,
        "mean": group.all_reduce_mean(x),
        "gradient": x.grad,
        "rows": group.get_own_rows(12, 3),
    }
    return {name: tensor.detach().numpy() for name, tensor in found.items()} | {
        "most": np.array(group.find_max(group.rank))
    }


class Worker:
    """One of the two processes."""

    def __init__(self, group: ProcessGroup, folder: Path, corpus: Corpus) -> None:
        self.group, self.folder, self.corpus = group, folder, corpus

    def keep(self, name: str, arrays: dict[str, np.ndarray]) -> None:
        np.savez(self.folder / f"{name}-{self.group.rank}.npz", **arrays)

    def refused(self, name: str, attempt: Callable[[], object]) -> None:
        """Write the error that an attempt raises to a file."""
        said = None
        try:
            attempt()
        except EqkinError as error:
            said = [type(error).__name__, str(error)]
        (self.folder / f"{name}-{self.group.rank}.json").write_text(json.dumps(said))

    def run(
        self,
        name: str,
        recipe: Recipe,
        *,
        resume: bool = False,
        logging: LoggingConfig = LOGGING,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> TrainingResult:
        """Run in both processes."""
        folder = self.folder / name
        run = TrainingRun(
            self.corpus, recipe, folder, "cpu", logging=logging, should_stop=should_stop, group=self.group
        )
        return run.train(resume=resume)

    def refusals(self) -> None:
        recipe = RECIPES["histogram"]
        self.refused("odd", lambda: self.run("odd", recipe.override({"batch": "7"})))
        self.refused("there", lambda: self.run("whole", RESUMED))
        self.refused("different", lambda: self.group.check_same("equations", str(self.group.rank)))
        asked = iter([False] * 5)
        self.run("nan", recipe, should_stop=lambda: self.group.rank == 1 and next(asked, True))  # the second alone
        if self.group.is_first:
            saved = load_checkpoint(self.folder / "nan")
            assert saved is not None
            saved.arrays["model.network.first.weight"][0, 0] = np.nan
            save_checkpoint(self.folder / "nan", saved.arrays, saved.facts)
        self.refused("nan", lambda: self.run("nan", recipe, resume=True))

    def killed(self) -> None:
        """Kill the second process in a step; the first has to notice."""
        asked = iter(range(KILLED_AT))

        def die() -> bool:
            if not self.group.is_first and next(asked, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)
            return False

        logging = replace(LOGGING, save_seconds=0)
        self.refused("lost", lambda: self.run("killed", RESUMED, logging=logging, should_stop=die))


def run_cases(rank: int, folder: Path) -> None:
    """Run all cases in one of the processes."""
    os.environ["RANK"] = str(rank)
    sampling.PROJECTION_DIMENSIONS = FAST_DIMENSIONS
    with join_process_group(CPU, timeout=timedelta(seconds=60)) as group:
        worker = Worker(group, folder, Corpus.load(folder / "corpus.zst"))
        worker.keep("sums", _sums(group))
        for name, recipe in RECIPES.items():
            worker.keep(name, steps(worker.corpus, recipe, group))
        worker.run("whole", RESUMED)
        asked = iter([False] * KILLED_AT)
        worker.run("resumed", RESUMED, should_stop=lambda: next(asked, True))
        worker.run("resumed", RESUMED, resume=True)
        worker.refusals()
        worker.killed()


def main() -> None:
    """Start the processes and wait for them."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    os.environ |= {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    processes = [get_context("fork").Process(target=run_cases, args=(rank, Path(sys.argv[1]))) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()
