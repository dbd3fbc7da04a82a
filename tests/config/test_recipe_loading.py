"""YAML as its users believe it to be, `extends`, overrides, and the way back."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalinginter.config.load import (
    apply_overrides,
    differences,
    dump,
    load_recipe,
    merge,
    recipe_dict,
    validate,
)
from scalinginter.config.yaml_strict import parse


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_pitfall_40_every_way_python_writes_a_float_is_read_as_that_float(value):
    assert parse(f"x: {value!r}", "t")["x"] == value


@pytest.mark.parametrize("text", ["1e-5", "1E5", "+1e3", "1.5e-3", ".5", "1.", "1_000.5"])
def test_pitfall_40_a_number_in_any_notation_is_a_float(text):
    assert isinstance(parse(f"x: {text}", "t")["x"], float)


@pytest.mark.parametrize(
    "text", ["no", "yes", "on", "off", "No", "y", "2026-11-30", "1:30", "012x"]
)
def test_pitfall_40_words_that_yaml_1_1_would_turn_into_something_else_stay_strings(text):
    assert parse(f"x: {text}", "t")["x"] == text


def test_infinity_is_a_float():
    assert parse("x: -.inf", "t")["x"] == -math.inf


def test_a_child_overrides_its_parent_key_by_key():
    merged = merge({"a": {"x": 1, "y": 2}, "b": 1}, {"a": {"y": 3}})
    assert merged == {"a": {"x": 1, "y": 3}, "b": 1}


def test_a_block_with_a_kind_replaces_the_whole_block():
    merged = merge({"h": {"kind": "fixed", "turns": 2}}, {"h": {"kind": "linear", "start": 1}})
    assert merged == {"h": {"kind": "linear", "start": 1}}


def test_another_environment_does_not_inherit_the_parameters_of_the_first():
    merged = merge({"e": {"id": "a", "params": {"x": 1}}}, {"e": {"id": "b"}})
    assert merged == {"e": {"id": "b"}}


def test_an_override_reaches_into_a_list():
    data = {"a": {"b": [1, 2, 3]}}
    apply_overrides(data, ["a.b.1=7"])
    assert data == {"a": {"b": [1, 7, 3]}}


def test_an_override_makes_the_mappings_on_its_way():
    data: dict = {}
    apply_overrides(data, ["a.b=1e-3"])
    assert data == {"a": {"b": 0.001}}


def test_a_resolved_recipe_reads_back_equal(tmp_path):
    recipe = load_recipe("schedules/quickstart/scaled.yaml", ["train.learning_rate=3e-7"])
    (tmp_path / "config.yaml").write_text(dump(recipe))
    assert load_recipe(tmp_path / "config.yaml") == recipe


def test_the_name_of_a_recipe_is_its_file_name():
    assert load_recipe("schedules/quickstart/fixed_long.yaml").name == "fixed_long"


def test_differences_name_the_leaves_that_differ():
    assert differences({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}) == {"a.c": (2, 3)}


def test_validation_of_a_resolved_recipe_changes_nothing():
    data = recipe_dict(load_recipe("schedules/quickstart/gated.yaml"))
    assert recipe_dict(validate(data, "again")) == data
