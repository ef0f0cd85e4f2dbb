"""Configuration of a run: recipes (everything that decides what is learned), optimizer and logging."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from eqkin.encoder.model import Architecture
from eqkin.errors import BadInput

# Works of the papers that `build_notations` and `build_names` make.
NOTATIONS, NAMES = "notations", "names"
LOSSES = ("histogram", "triplet", "kin")
SCHEDULES = ("linear", "cosine")
# A cosine schedule ends with this fraction of the peak rate.
_FINAL_FRACTION = 0.01


@dataclass(frozen=True)
class OptimizerConfig:
    """Steps and learning rate of a run; Adam, or AdamW if weights decay."""

    steps: int
    learning_rate: float = 1e-4  # at its peak
    warm_up: int = 1_000  # steps until the peak, at most a tenth of all
    schedule: str = "linear"  # how the rate falls: "linear" to 0, or "cosine" to a hundredth
    weight_decay: float = 0.0
    averaged: float = 0.0  # fraction of the steps, at the end, whose weights are averaged; 0: use the last weights

    def compute_rate(self, step: Tensor) -> Tensor:
        """Return the learning rate at a step (0-d tensor, from 0).

        linear: peak x min((step + 1) / warm_up, (steps - step) / (steps - warm_up))
        cosine: peak x min(1, (step + 1) / warm_up) x max(0.01, (1 + cos(pi step / steps)) / 2)
        """
        warm_up = min(self.warm_up, self.steps // 10)  # a short run would end before the rate has risen
        rising = (step + 1) / max(warm_up, 1)
        if self.schedule == "linear":
            falling = (self.steps - step) / max(self.steps - warm_up, 1)
            return self.learning_rate * torch.minimum(rising, falling).clamp(0.0, 1.0)
        falling = 0.5 * (1 + torch.cos(step * (math.pi / self.steps)))
        return self.learning_rate * rising.clamp(max=1.0) * falling.clamp(min=_FINAL_FRACTION)


@dataclass(frozen=True)
class LoggingConfig:
    """Settings: when a run logs, evaluates and saves. They do not influence what it learns."""

    log_steps: int = 256  # between two records of the losses
    score_steps: int = 0  # between two evaluations; 0: twenty in all
    score_triples: int = 10_000  # of an evaluation during the run
    final_triples: int = 100_000  # of the evaluation at the end
    save_seconds: float = 60.0  # between two checkpoints


@dataclass(frozen=True)
class Recipe:
    """Everything that decides what a run learns; the defaults are the paper's. Stored as JSON with the model.

    The comments are the table of settings in the documentation.
    """

    name: str = "paper"
    architecture: Architecture = field(default_factory=Architecture)
    loss: str = "histogram"  # `histogram`, `triplet`, or `kin`: tf-idf teacher, contexts and words
    masking: float = 0.15  # fraction of nodes to hide (the paper's recipe also predicts them)
    transpositions: float = 32.0  # mean number of random transpositions in the renaming of an equation's symbols
    batch: int = 128  # triplets per step
    triplets: int = 20_000_000  # triplets in all; the paper: 20 epochs of 1 M on its subset, of 20 M on all of arXiv
    learning_rate: float = 1e-4  # peak learning rate
    warm_up: int = 1_000  # steps until the peak, at most a tenth of all
    held_out: float = 0.1  # fraction of works held out for evaluation
    seed: int = 0  # determines everything that is random, except which works these are
    renamed: float = 1.0  # fraction of equations whose symbols are renamed
    balance: float = 0.0  # a paper is drawn with probability proportional to (papers of its work)^-balance
    weight_decay: float = 0.0  # of AdamW; 0: Adam
    schedule: str = "linear"  # how the rate falls: `linear` to 0, or `cosine` to a hundredth
    averaged: float = 0.0  # fraction of the last steps whose weights are averaged; 0: use the last weights
    temperature: float = 0.1  # of the tf-idf teacher in the loss `kin`
    structure_weight: float = 1.0  # weight of the tf-idf teacher in the loss `kin`
    context_weight: float = 0.1  # weight of the contrast between contexts in the loss `kin`
    words_weight: float = 0.3  # weight of the contrast with surrounding words in the loss `kin`
    notations: int = 0  # other notations of each rewritten equation; 0: no equation is rewritten
    rewritten: int = 60_000  # equations to rewrite, at most
    notations_renamed: float = 0.125  # fraction of the notations with other names of variables
    notations_paraphrased: float = 0.0  # fraction of the notations that say only nearly the same
    notations_share: float = 0.5  # fraction of the triplets that contrast notations of one equation
    names_share: float = 0.0  # fraction of the triplets that contrast equations with a common name

    @property
    def steps(self) -> int:
        """Number of steps."""
        return -(-self.triplets // self.batch)

    @property
    def optimizer(self) -> OptimizerConfig:
        """Steps, learning rate and averaging."""
        return OptimizerConfig(
            **{field.name: getattr(self, field.name) for field in dataclasses.fields(OptimizerConfig)}
        )

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        values: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        return values

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Recipe:
        """Read what `to_dict` returned; raises `BadInput`."""
        try:
            architecture = Architecture.from_dict(values["architecture"])
            return cls(**values | {"architecture": architecture}).validate()
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(f"not a recipe: {error}") from error

    def override(self, settings: dict[str, str]) -> Recipe:
        """Return the recipe with some settings replaced, given as text (`{"batch": "1024", "width": "64"}`)."""
        shape = vars(self.architecture).copy()
        own = {name: value for name, value in vars(self).items() if name != "architecture"}
        for name, text in settings.items():
            values = own if name in own else shape
            if name not in values:
                raise BadInput(f"a recipe has no setting {name!r}; its settings are {', '.join([*own, *shape])}")
            values[name] = _parse_setting(name, text, values[name])
        return Recipe(**own, architecture=Architecture(**shape)).validate()

    def validate(self) -> Recipe:
        """Return the recipe itself; raises `BadInput` if a setting is invalid."""
        for name, (low, high) in _RANGES.items():
            value = getattr(self if hasattr(self, name) else self.architecture, name)
            if not low <= value <= high:
                raise BadInput(f"recipe: {name} must be from {low:,} to {high:,}, not {value}")
        for name, allowed in (("loss", LOSSES), ("schedule", SCHEDULES)):
            if getattr(self, name) not in allowed:
                raise BadInput(f"recipe: {name} must be one of {', '.join(allowed)}, not {getattr(self, name)!r}")
        layers = self.architecture.layers
        if not all(layer in range(layers) for layer in self.architecture.normalised):
            raise BadInput(f"recipe: normalised must be some of the layers 0 to {layers - 1}")
        if self.notations_share + self.names_share >= 1:
            raise BadInput("recipe: the sum of notations_share and names_share must be below 1")
        if self.loss == "kin" and not self.structure_weight + self.context_weight + self.words_weight:
            raise BadInput('recipe: the loss "kin" needs at least one positive weight')
        return self


_RANGES: dict[str, tuple[float, float]] = {
    "masking": (0, 0.99),
    "transpositions": (0, 500),
    "batch": (1, 10**9),
    "triplets": (1, 10**15),
    "learning_rate": (1e-12, 100),
    "warm_up": (0, 10**15),
    "held_out": (1e-6, 0.9),
    "seed": (-(2**63), 2**63 - 1),
    "renamed": (0, 1),
    "balance": (0, 1),
    "weight_decay": (0, 0.99),
    "averaged": (0, 1),
    "temperature": (0.001, 100),
    "structure_weight": (0, 1_000),
    "context_weight": (0, 1_000),
    "words_weight": (0, 1_000),
    "notations": (0, 1_000),
    "rewritten": (0, 10**9),
    "notations_renamed": (0, 1),
    "notations_paraphrased": (0, 1),
    "notations_share": (0, 1),
    "names_share": (0, 1),
    "width": (1, 10**6),
    "layers": (1, 1_000),
    "dimensions": (1, 10**6),
}

RECIPES = {
    "paper": Recipe(),
    "eqkin": Recipe(
        name="eqkin",
        architecture=Architecture(kind="mix", width=256, layers=4, normalised=(), dimensions=128),
        loss="kin",
        masking=0.15,
        transpositions=120.0,
        renamed=0.1,
        batch=1_024,
        triplets=40_000_000,
        learning_rate=1e-3,
        warm_up=100,
        balance=0.5,
        weight_decay=0.01,
        schedule="cosine",
        averaged=0.4,
        temperature=0.05,
        structure_weight=0.4,
        context_weight=1.0,
        notations=3,
        rewritten=90_000,
        notations_paraphrased=0.65,
        notations_share=0.62,
        names_share=0.2,
    ),
}


def get_recipe(name: str) -> Recipe:
    """Return one of `RECIPES`; raises `BadInput`."""
    if name not in RECIPES:
        raise BadInput(f"there is no recipe {name!r}; there are {', '.join(RECIPES)}")
    return RECIPES[name]


def choose_device(name: str) -> torch.device:
    """Return the device with a name; "auto" is a GPU if there is one. Raises `BadInput`."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise BadInput(f"there is no device {name!r}: use cpu, cuda or auto") from error
    if device.type not in ("cpu", "cuda") or (device.type == "cuda" and not torch.cuda.is_available()):
        raise BadInput(f"{name} cannot be used here: torch finds no such device")
    return device


def _parse_setting(name: str, text: str, current: Any) -> Any:
    """Convert a setting to the type of its current value; integers may be written as `1e6`."""
    try:
        if isinstance(current, tuple):
            parts = [part.strip() for part in text.split(",") if part.strip()]
            return tuple(map(int, parts))
        if isinstance(current, int) and "e" in text.lower():
            number = float(text)
            if not number.is_integer():
                raise ValueError(text)
            return int(number)
        return type(current)(text)
    except ValueError as error:
        raise BadInput(f"recipe: {name}={text} is not a valid {type(current).__name__}") from error
