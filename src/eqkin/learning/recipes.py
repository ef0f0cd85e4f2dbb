"""Recipes: everything that decides what a run learns, under a name."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from eqkin.errors import BadInput
from eqkin.learning.pairs import KINDS
from eqkin.network.architecture import Architecture

LOSSES = ("histogram", "triplet")


@dataclass(frozen=True)
class Recipe:
    """How to learn; the defaults are the paper's. Kept as JSON beside what it made."""

    name: str = "paper"
    architecture: Architecture = field(default_factory=Architecture)
    loss: str = "histogram"  # on similarities: "histogram" or "triplet"
    contexts: tuple[str, ...] = KINDS  # what makes equations related
    masking: float = 0.15  # share of nodes to hide and guess; 0 for none
    transpositions: float = 32.0  # renamings of symbols an equation; 0 for none
    batch: int = 128  # triplets a step
    triplets: int = 20_000_000  # in all; the paper: 20 epochs of 1 M on its subset, of 20 M on all of arXiv
    learning_rate: float = 1e-4  # at its peak
    warm_up: int = 1_000  # steps until the peak, at most a tenth of all
    held_out: float = 0.1  # share of papers kept apart to measure on
    split_seed: int = 0  # which papers these are
    seed: int = 0  # of everything else that is random

    @property
    def steps(self) -> int:
        """How many there are in all."""
        return -(-self.triplets // self.batch)

    def as_dict(self) -> dict[str, Any]:
        """The recipe as JSON would have it."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in dataclasses.asdict(self).items()} | {
            "architecture": self.architecture.as_dict()
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Recipe:
        """What `as_dict` gave; raises `BadInput`."""
        try:
            return cls(
                **values | {"architecture": Architecture.from_dict(values["architecture"])}
                | {"contexts": tuple(values["contexts"])}
            ).checked()  # fmt: skip
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(f"not a recipe: {error}") from error

    def changed(self, settings: dict[str, str]) -> Recipe:
        """The recipe with some settings replaced, given as text (`{"batch": "1024", "width": "64"}`)."""
        own = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "architecture"}
        shape = {f.name: getattr(self.architecture, f.name) for f in dataclasses.fields(self.architecture)}
        for name, text in settings.items():
            values = own if name in own else shape
            if name not in values:
                raise BadInput(f"a recipe has no setting {name!r}; there are {', '.join([*own, *shape])}")
            values[name] = _read(name, text, values[name])
        return Recipe(**own, architecture=Architecture(**shape)).checked()

    def checked(self) -> Recipe:
        """Itself; raises `BadInput` if a setting makes no sense."""
        shape = self.architecture
        checks = {
            f"loss must be one of {', '.join(LOSSES)}": self.loss in LOSSES,
            f"contexts must be some of {', '.join(KINDS)}": bool(self.contexts) and set(self.contexts) <= set(KINDS),
            "masking must be in [0, 1)": 0 <= self.masking < 1,
            "transpositions must be in [0, 500]": 0 <= self.transpositions <= 500,
            "batch must be at least 1": self.batch >= 1,
            "triplets must be in [1, 10^15]": 1 <= self.triplets <= 10**15,
            "learning_rate must be positive": 0 < self.learning_rate < 100,
            "warm_up must not be negative": self.warm_up >= 0,
            "held_out must be in (0, 0.9]": 0 < self.held_out <= 0.9,
            "seeds must have at most 64 bits": all(-(2**63) <= s < 2**63 for s in (self.seed, self.split_seed)),
            "width, layers, dimensions must be at least 1": min(shape.width, shape.layers, shape.dimensions) >= 1,
            f"normalised must be some of the layers 0 to {shape.layers - 1}, and is {_listed(shape.normalised)}": all(
                isinstance(layer, int) and 0 <= layer < shape.layers for layer in shape.normalised
            ),
        }
        for message, holds in checks.items():
            if not holds:
                raise BadInput(f"recipe: {message}")
        return self


def _listed(values: tuple[Any, ...]) -> str:
    """As it is written in `--set`."""
    return ",".join(map(str, values))


def _read(name: str, text: str, now: Any) -> Any:
    try:
        if isinstance(now, tuple):
            parts = [part.strip() for part in text.split(",") if part.strip()]
            return tuple(int(part) if part.isdecimal() else part for part in parts)
        if isinstance(now, int):
            return _whole(text)
        return type(now)(text)
    except ValueError as error:
        raise BadInput(f"recipe: {name}={text} is no {type(now).__name__}") from error


def _whole(text: str) -> int:
    """A whole number, also as `1e6`; raises `ValueError`."""
    if "e" not in text.lower():
        return int(text)
    number = float(text)
    if not number.is_integer():
        raise ValueError(text)
    return int(number)


RECIPES = {"paper": Recipe()}


def recipe_named(name: str) -> Recipe:
    """One of `RECIPES`; raises `BadInput`."""
    if name not in RECIPES:
        raise BadInput(f"there is no recipe {name!r}; there are {', '.join(RECIPES)}")
    return RECIPES[name]
