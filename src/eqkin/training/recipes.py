"""Recipes: everything that decides what a run learns, under a name."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from eqkin.encoder.architecture import Architecture
from eqkin.errors import BadInput
from eqkin.training.pairs import CONTEXT_KINDS

LOSSES = ("histogram", "triplet", "kin")
SCHEDULES = ("linear", "cosine")


@dataclass(frozen=True)
class Recipe:
    """How to learn; the defaults are the paper's. Kept as JSON beside what it made."""

    name: str = "paper"
    architecture: Architecture = field(default_factory=Architecture)
    loss: str = "histogram"  # on similarities: "histogram", "triplet", or "kin" (see `kin_objective`)
    contexts: tuple[str, ...] = CONTEXT_KINDS  # what makes equations related
    masking: float = 0.15  # share of nodes to hide, and by the paper's recipe to guess; 0 for none
    transpositions: float = 32.0  # renamings of symbols an equation; 0 for none
    batch: int = 128  # triplets a step
    triplets: int = 20_000_000  # in all; the paper: 20 epochs of 1 M on its subset, of 20 M on all of arXiv
    learning_rate: float = 1e-4  # at its peak
    warm_up: int = 1_000  # steps until the peak, at most a tenth of all
    held_out: float = 0.1  # share of papers kept apart to measure on
    split_seed: int = 0  # which papers these are
    seed: int = 0  # of everything else that is random
    renamed: float = 1.0  # share of the equations whose symbols are renamed
    balance: float = 0.0  # a paper comes up in proportion to (papers of its work)^-balance
    weight_decay: float = 0.0  # of AdamW; 0 for Adam
    schedule: str = "linear"  # how the rate falls: "linear" to 0, or "cosine" to a hundredth
    averaged: float = 0.0  # share of the steps, the last ones, whose weights are averaged; 0 for the last weights
    temperature: float = 0.1  # of structure, in the loss "kin"
    structure_weight: float = 1.0  # of the parts of the loss "kin"
    context_weight: float = 0.1
    words_weight: float = 0.3

    @property
    def steps(self) -> int:
        """How many there are in all."""
        return -(-self.triplets // self.batch)

    def to_dict(self) -> dict[str, Any]:
        """The recipe as JSON would have it; what came later and has its default is left out, as it was before."""
        now = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        kept = {k: v for k, v in now.items() if k not in _LATER_DEFAULTS or v != _LATER_DEFAULTS[k]}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in kept.items()} | {
            "architecture": self.architecture.to_dict()
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Recipe:
        """What `as_dict` gave; raises `BadInput`."""
        try:
            return cls(
                **values | {"architecture": Architecture.from_dict(values["architecture"])}
                | {"contexts": tuple(values["contexts"])}
            ).validate()  # fmt: skip
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(f"not a recipe: {error}") from error

    def override(self, settings: dict[str, str]) -> Recipe:
        """The recipe with some settings replaced, given as text (`{"batch": "1024", "width": "64"}`)."""
        own = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "architecture"}
        shape = {f.name: getattr(self.architecture, f.name) for f in dataclasses.fields(self.architecture)}
        for name, text in settings.items():
            values = own if name in own else shape
            if name not in values:
                raise BadInput(f"a recipe has no setting {name!r}; there are {', '.join([*own, *shape])}")
            values[name] = _parse_setting(name, text, values[name])
        return Recipe(**own, architecture=Architecture(**shape)).validate()

    def validate(self) -> Recipe:
        """Itself; raises `BadInput` if a setting makes no sense."""
        shape = self.architecture
        checks = {
            f"loss must be one of {', '.join(LOSSES)}": self.loss in LOSSES,
            f"contexts must be some of {', '.join(CONTEXT_KINDS)}": bool(self.contexts)
            and set(self.contexts) <= set(CONTEXT_KINDS),
            "masking must be in [0, 1)": 0 <= self.masking < 1,
            "transpositions must be in [0, 500]": 0 <= self.transpositions <= 500,
            "batch must be at least 1": self.batch >= 1,
            "triplets must be in [1, 10^15]": 1 <= self.triplets <= 10**15,
            "learning_rate must be positive": 0 < self.learning_rate < 100,
            "warm_up must not be negative": self.warm_up >= 0,
            "held_out must be in (0, 0.9]": 0 < self.held_out <= 0.9,
            "renamed and averaged must be in [0, 1]": all(0 <= share <= 1 for share in (self.renamed, self.averaged)),
            "balance must be in [0, 1]": 0 <= self.balance <= 1,
            "weight_decay must be in [0, 1)": 0 <= self.weight_decay < 1,
            f"schedule must be one of {', '.join(SCHEDULES)}": self.schedule in SCHEDULES,
            "temperature must be in [0.001, 100]": 0.001 <= self.temperature <= 100,
            "the weights of the parts must be in [0, 1000]": all(0 <= w <= 1000 for w in self._get_loss_weights()),
            "the loss kin needs one of its parts: a weight above 0": self.loss != "kin"
            or sum(self._get_loss_weights()) > 0,
            "seeds must have at most 64 bits": all(-(2**63) <= s < 2**63 for s in (self.seed, self.split_seed)),
            "width, layers, dimensions must be at least 1": min(shape.width, shape.layers, shape.dimensions) >= 1,
            f"normalised must be some of the layers 0 to {shape.layers - 1}, and is {_format_tuple(shape.normalised)}": all(
                isinstance(layer, int) and 0 <= layer < shape.layers for layer in shape.normalised
            ),
        }
        for message, holds in checks.items():
            if not holds:
                raise BadInput(f"recipe: {message}")
        return self

    def _get_loss_weights(self) -> tuple[float, float, float]:
        return self.structure_weight, self.context_weight, self.words_weight


_LATER_DEFAULTS = {  # settings that recipes kept before do not have, with what was done then
    f.name: f.default
    for f in dataclasses.fields(Recipe)
    if f.name in (
        "renamed", "balance", "weight_decay", "schedule", "averaged",
        "temperature", "structure_weight", "context_weight", "words_weight",
    )
}  # fmt: skip


def _format_tuple(values: tuple[Any, ...]) -> str:
    """As it is written in `--set`."""
    return ",".join(map(str, values))


def _parse_setting(name: str, text: str, now: Any) -> Any:
    try:
        if isinstance(now, tuple):
            parts = [part.strip() for part in text.split(",") if part.strip()]
            return tuple(int(part) if part.isdecimal() else part for part in parts)
        if isinstance(now, int):
            return _parse_integer(text)
        return type(now)(text)
    except ValueError as error:
        raise BadInput(f"recipe: {name}={text} is no {type(now).__name__}") from error


def _parse_integer(text: str) -> int:
    """A whole number, also as `1e6`; raises `ValueError`."""
    if "e" not in text.lower():
        return int(text)
    number = float(text)
    if not number.is_integer():
        raise ValueError(text)
    return int(number)


RECIPES = {
    "paper": Recipe(),
    "eqkin": Recipe(
        name="eqkin",
        architecture=Architecture(kind="mix", width=512, layers=4, normalised=()),
        loss="kin",
        masking=0.15,
        transpositions=120.0,
        renamed=0.1,
        batch=1_024,
        triplets=2_000_000,
        learning_rate=1e-3,
        warm_up=100,
        balance=0.5,
        weight_decay=0.01,
        schedule="cosine",
        averaged=0.4,
        temperature=0.05,
        context_weight=0.3,
    ),
}


def get_recipe(name: str) -> Recipe:
    """One of `RECIPES`; raises `BadInput`."""
    if name not in RECIPES:
        raise BadInput(f"there is no recipe {name!r}; there are {', '.join(RECIPES)}")
    return RECIPES[name]
