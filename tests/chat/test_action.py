import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalinginter.chat.action import Plain, ReAct

ROOT = Path(__file__).parents[2]
ACTIONS = st.text(min_size=1).filter(
    lambda text: (
        "</think>" not in text
        and text == text.strip()
        and text.splitlines() == [text]
        and text[:2] != "**"
    )
)


PLAIN, REACT = Plain([]), ReAct([])


def parse_plain(text):
    return PLAIN.parse(text).action


def parse_react(text):
    return REACT.parse(text).action


@given(st.text())
def test_an_action_of_text_is_stripped_and_never_empty(text):
    actions = [form.parse(text).action for form in (PLAIN, REACT)]
    assert all(action is None or action == action.strip() != "" for action in actions)


@pytest.mark.parametrize("form", [PLAIN, REACT])
def test_thoughts_before_the_answer_are_not_taken_for_the_action(form):
    thought = "<think>\nAction: jump\n</think>\n"
    assert form.parse(thought + form.write("get log")).action == "get log"


@given(ACTIONS)
def test_pitfall_28_a_plain_action_is_accepted_as_it_is(action):
    assert parse_plain(action) == action


@given(st.text(st.characters(exclude_characters=":", codec="utf-8")), ACTIONS)
def test_pitfall_28_an_answer_in_the_form_of_the_instructions_is_accepted(thought, action):
    answer = ReAct.instructions.split("in this form:\n")[1]
    answer = answer.replace("what you think", thought).replace("the action you take", action)
    assert parse_react(answer) == action


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("get log", "get log"),
        ("  get log \nget stick", "get log"),
        ("\nget log", "get log"),
        ("", None),
        (" \n\t", None),
    ],
)
def test_a_plain_action_is_the_first_line_that_holds_anything(text, action):
    assert parse_plain(text) == action


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("Thought: a log\nAction: get log", "get log"),
        ("thought: a log\n  ACTION :get log  ", "get log"),
        ("Action: look\nThought: no\nAction: get log", "get log"),
        ("Action:\nget log\n", "get log"),
        ("**Action:** get log", "get log"),
        ("Action 2: get log", "get log"),
        ("Action: get log\nObservation: got it", "get log"),
        ("Thought: the action: get log", None),
        ("Action:", None),
        ("Actions: get log", None),
        ("get log", None),
    ],
)
def test_a_react_action_is_what_the_last_action_line_says(text, action):
    assert parse_react(text) == action


def test_pitfall_30_code_in_an_answer_is_text():
    code = "__import__('os').system('true')"
    assert [parse_plain(code), parse_react(f"Action: {code}")] == [code, code]


NO_TEXT_OF_A_MODEL = {
    "environments/code/sandbox/confine.py",  # runs inside the sandbox
    "environments/code/sandbox/driver.py",  # runs inside the sandbox
    "environments/code/python_programs/functions.py",  # its own expressions and whole numbers
}


@pytest.mark.parametrize("package", ["scalinginter", "environments"])
def test_pitfall_30_no_module_evaluates_text(package):
    calls = [
        (path.name, node.func.id)
        for path in sorted((ROOT / package).rglob("*.py"))
        if str(path.relative_to(ROOT)) not in NO_TEXT_OF_A_MODEL
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    assert [call for call in calls if call[1] in ("eval", "exec", "compile", "__import__")] == []
