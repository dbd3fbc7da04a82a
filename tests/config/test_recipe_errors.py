"""A wrong recipe is refused with every problem, its path, and the nearest name."""

import pytest

from scalinginter.config.load import apply_overrides, load_recipe, validate
from scalinginter.config.yaml_strict import parse
from scalinginter.errors import ConfigError, UserError


def recipe(**changes):
    data = {
        "environment": {"id": "toy_corridor"},
        "horizon": {"kind": "fixed", "turns": 5},
        "train": {"num_steps": 3},
        "eval": {"horizon": 5},
    }
    return data | changes


def problems(data):
    with pytest.raises(ConfigError) as caught:
        validate(data, "r.yaml")
    return str(caught.value)


def test_pitfall_39_an_unknown_key_names_the_nearest_one():
    text = problems(recipe(train={"num_steps": 3, "learning_rte": 1.0}))
    assert "train.learning_rte: unknown key (did you mean 'learning_rate'?)" in text


def test_pitfall_39_an_unknown_key_inside_a_horizon_names_the_nearest_one():
    text = problems(recipe(horizon={"kind": "staged", "stages": [2], "evry": 1, "every": 2}))
    assert "horizon.evry: unknown key (did you mean 'every'?)" in text


def test_an_algorithm_without_a_kind_is_grpo():
    assert validate(recipe(algorithm={"clip_high": 0.28}), "r.yaml").algorithm.kind == "grpo"


def test_all_problems_are_told_at_once():
    text = problems(recipe(modle={}, train={"num_steps": "x"}, eval={"horizon": 0}))
    assert text.startswith("r.yaml: 3 problems")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"horizon": {"kind": "fixed", "turns": 0}}, "horizon.turns: "),
        ({"horizon": {"kind": "stagd", "stages": [1]}}, "(did you mean 'staged'?)"),
        ({"horizon": {"turns": 3}}, "horizon.kind: missing; allowed: fixed"),
        ({"horizon": {"kind": "staged", "stages": [5, 3], "every": 1}}, "shrinks the horizon"),
        ({"horizon": {"kind": "staged", "stages": [5], "every": 1, "at_step": [0]}}, "exactly one"),
        ({"horizon": {"kind": "staged", "stages": [3, 5], "at_step": [0]}}, "1 entries for 2"),
        ({"horizon": {"kind": "staged", "stages": [3, 5], "at_step": [1, 2]}}, "start with 0"),
        ({"horizon": {"kind": "linear", "start": 9, "end": 3, "over_steps": 2}}, "shrinks"),
        ({"algorithm": {"kind": "dr_grop"}}, "algorithm.kind: got 'dr_grop', allowed: "),
        ({"algorithm": {"kind": "dr_grop"}}, "(did you mean 'dr_grpo'?)"),
        ({"algorithm": {"clip_hihg": 0.3}}, "algorithm.clip_hihg: unknown key (did you mean"),
        ({"algorithm": {"kind": "dr_grpo", "clip_lo": 0.3}}, "algorithm.clip_lo: unknown key (did"),
        ({"algorithm": "grpo"}, "algorithm: must be a block of keys with values, got 'grpo'"),
        ({"algorithm": {"kind": "grpo", "kl_in": "reward"}}, "kl_in: reward needs kl_estimator"),
        ({"train": {}}, "needs num_steps or a budget"),
        ({"train": {"num_steps": True}}, "train.num_steps"),
        ({"train": {"num_steps": 3, "learning_rate": "1e-3x"}}, "train.learning_rate"),
        ({"eval": {}}, "eval.horizon: missing"),
        ({"name": "../elsewhere"}, "name: "),
        ({"train": {"num_steps": 3, "learning_rate": float("inf")}}, "train.learning_rate: "),
        ({"rollout": {"temperature": float("inf")}}, "rollout.temperature: "),
        ({"chat": {"format": "react", "constrain_to_admissible": True}}, "format: plain"),
        ({"rollout": {"max_tokens_per_turn": 64, "max_context": 64}}, "must be below"),
        ({"engine": {"kind": "scripted"}}, "engine: kind: scripted needs a script"),
        (
            {
                "engine": {"kind": "scripted", "script": ["jump"]},
                "chat": {"constrain_to_admissible": True},
            },
            "cannot be held to a constraint",
        ),
        ({"train": 5}, "train: must be a block of keys with values, got 5"),
        ({"environment": {"id": "toy_corridor", "params": [1]}}, "environment.params: must be a"),
    ],
)
def test_a_wrong_value_is_told_with_what_is_allowed(changes, sentence):
    assert sentence in problems(recipe(**changes))


def test_an_unknown_environment_names_the_nearest_one():
    with pytest.raises(UserError, match="did you mean 'textcraft'"):
        validate(recipe(environment={"id": "textcarft"}), "r.yaml")


def test_a_missing_recipe_names_the_nearest_file(tmp_path):
    (tmp_path / "scaled.yaml").write_text("name: x")
    with pytest.raises(ConfigError, match=r"no such file \(did you mean '.*scaled.yaml'"):
        load_recipe(tmp_path / "scald.yaml")


def test_a_recipe_that_extends_itself_is_refused(tmp_path):
    (tmp_path / "a.yaml").write_text("extends: b.yaml")
    (tmp_path / "b.yaml").write_text("extends: a.yaml")
    with pytest.raises(ConfigError, match=r"a.yaml -> b.yaml -> a.yaml"):
        load_recipe(tmp_path / "a.yaml")


@pytest.mark.parametrize("override", ["train.num_steps", "=3", "train.num_steps.x=3", "a.5=1"])
def test_a_malformed_override_is_refused(override):
    with pytest.raises(ConfigError, match="--set"):
        apply_overrides(recipe(a=[1, 2]), [override])


@pytest.mark.parametrize("text", ["a: [1", "a: 1\n b: 2", "\t- x", "a: b: c"])
def test_text_that_is_not_yaml_names_the_line(text):
    with pytest.raises(ConfigError, match="not valid YAML on line"):
        parse(text, "r.yaml")


def test_pitfall_40_a_duplicate_key_is_an_error_with_both_lines():
    with pytest.raises(ConfigError, match="'a' stands twice, on lines 1 and 3"):
        parse("a: 1\nb: 2\na: 3", "r.yaml")
