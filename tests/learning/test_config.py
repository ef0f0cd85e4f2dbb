"""Recipes: defaults, overrides, JSON, and invalid settings."""

# ruff: noqa: E402
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch", reason="training needs torch: pip install 'eqkin[train]'")

from eqkin.encoder.model import Architecture
from eqkin.errors import BadInput
from eqkin.learning.config import RECIPES, Recipe, get_recipe


def test_recipe_paper_has_the_papers_settings():
    recipe = get_recipe("paper")
    assert recipe == Recipe() == RECIPES["paper"]
    assert recipe.architecture == Architecture(width=512, layers=3, normalised=(0, 2), dimensions=64)
    assert recipe.loss == "histogram"
    assert (recipe.masking, recipe.transpositions, recipe.batch) == (0.15, 32.0, 128)
    assert (recipe.learning_rate, recipe.warm_up, recipe.triplets) == (1e-4, 1_000, 20_000_000)


@given(
    st.builds(
        Recipe,
        name=st.text(),
        architecture=st.builds(
            Architecture, st.integers(1, 999), st.just(4), st.sets(st.integers(0, 3)).map(tuple), st.integers(1, 99)
        ),
        loss=st.sampled_from(["histogram", "triplet"]),
        renamed=st.floats(0, 1),
        balance=st.floats(0, 1),
        weight_decay=st.floats(0, 0.99),
        schedule=st.sampled_from(["linear", "cosine"]),
        averaged=st.floats(0, 1),
        temperature=st.floats(0.001, 100),
        structure_weight=st.floats(0, 1000),
        context_weight=st.floats(0, 1000),
        words_weight=st.floats(0, 1000),
        masking=st.floats(0, 0.99),
        transpositions=st.floats(0, 500),
        batch=st.integers(1, 10**6),
        triplets=st.integers(1, 10**9),
        learning_rate=st.floats(1e-9, 1),
        warm_up=st.integers(0, 10**6),
        held_out=st.floats(0.01, 0.9),
        seed=st.integers(-(2**63), 2**63 - 1),
    )
)
def test_recipe_survives_a_json_round_trip(recipe):
    assert Recipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe.validate()


def test_override_parses_settings_given_as_text():
    changed = Recipe().override(
        {
            "batch": "1_024", "triplets": "1.5e6", "masking": "0", "loss": "triplet",
            "width": "64", "layers": "4", "normalised": "0,1,3", "seed": "-3", "learning_rate": "3e-4", "name": "mine",
        }
    )  # fmt: skip
    assert (changed.batch, changed.triplets, changed.masking, changed.loss) == (1024, 1_500_000, 0.0, "triplet")
    assert (changed.seed, changed.learning_rate) == (-3, 3e-4)
    assert changed.architecture == Architecture(64, 4, (0, 1, 3), 64)
    assert changed.name == "mine"
    assert Recipe().override({"normalised": ""}).architecture.normalised == ()
    assert Recipe().override({}) == Recipe()


@pytest.mark.parametrize(("triplets", "batch", "steps"), [(1, 128, 1), (128, 128, 1), (129, 128, 2), (10, 3, 4)])
def test_recipe_steps_cover_all_triplets(triplets, batch, steps):
    assert Recipe(triplets=triplets, batch=batch).steps == steps


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("loss", "hinge"),
        ("masking", "1"),
        ("masking", "-0.1"),
        ("masking", "nan"),
        ("transpositions", "501"),
        ("transpositions", "-1"),
        ("batch", "0"),
        ("triplets", "0"),
        ("triplets", "1e30"),
        ("learning_rate", "0"),
        ("learning_rate", "nan"),
        ("learning_rate", "inf"),
        ("warm_up", "-1"),
        ("held_out", "0"),
        ("renamed", "1.1"),
        ("averaged", "-0.1"),
        ("balance", "nan"),
        ("weight_decay", "1"),
        ("schedule", "step"),
        ("temperature", "0"),
        ("words_weight", "-1"),
        ("notations", "-1"),
        ("notations_share", "1"),
        ("context_weight", "nan"),
        ("held_out", "0.95"),
        ("seed", "9223372036854775808"),
        ("width", "0"),
        ("layers", "0"),
        ("dimensions", "-1"),
        ("layers", "2"),
        ("normalised", "3"),
        ("normalised", "-1"),
        ("normalised", "all"),
        ("batch", "many"),
        ("batch", "2.5"),
        ("batch", "2.5e0"),
        ("batch", "1e999"),
        ("masking", "much"),
        ("momentum", "1"),
        ("architecture", "1"),
    ],
)
def test_override_rejects_invalid_settings_by_name(name, text):
    with pytest.raises(BadInput, match=name):
        Recipe().override({name: text})


def test_recipe_eqkin_needs_at_least_one_loss():
    none = {"structure_weight": "0", "context_weight": "0", "words_weight": "0"}
    with pytest.raises(BadInput, match="needs at least one positive weight"):
        get_recipe("eqkin").override(none)
    assert Recipe().override(none).words_weight == 0  # the recipe does not use it


@pytest.mark.parametrize(
    "change",
    [
        {"architecture": None},
        {"architecture": {"width": 5}},
        {"architecture": Architecture().to_dict() | {"more": 1}},
        {"batch": "8"},
        {"batch": 0},
        {"another": 1},
        {"loss": "none"},
    ],
)
def test_from_dict_rejects_json_that_is_not_a_recipe(change):
    with pytest.raises(BadInput):
        Recipe.from_dict(Recipe().to_dict() | change)
    with pytest.raises(BadInput):
        Recipe.from_dict({})


def test_get_recipe_names_the_known_recipes():
    with pytest.raises(BadInput, match="no recipe 'papper'; there are paper, eqkin"):
        get_recipe("papper")
