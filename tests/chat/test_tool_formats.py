"""Every form of answers reads what it writes and accepts what it says, and no text breaks it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalinginter.chat.formats import FORMATS, answer_format
from scalinginter.chat.tools import call_of, fill, unfill
from scalinginter.env.base import ACT
from scalinginter.errors import UserError
from scalinginter.types import Tool


def tool(name, template, **types):
    schemas = {key: {"type": kind} for key, kind in types.items()}
    parameters = {"type": "object", "properties": schemas, "required": list(types)}
    return Tool(name, f"Does {name}.", parameters, template)


SEARCH = tool("search", "search[{query}]", query="string")
TYPE = tool("type", "type [{id}] [{text}]", id="integer", text="string")
PYTHON = tool("python", "python\n{code}", code="string")
LOOK = tool("look", "look")
TOOLS = (SEARCH, TYPE, PYTHON, LOOK)
FORMS = {name: make(TOOLS) for name, make in FORMATS.items()}
TOOL_FORMS = ("tool_call", "tags", "code")
WORDS = st.text(st.characters(exclude_characters="<`\r", codec="utf-8")).map(
    lambda t: t.strip("\n")
)


def tool_call(name, arguments):
    body = json.dumps({"name": name, "arguments": arguments})
    return FORMS["tool_call"].parse(f"<tool_call>{body}</tool_call>")


@given(WORDS)
def test_a_tool_call_is_read_back_from_what_is_written(query):
    action = f"search[{query}]"
    assert FORMS["tool_call"].parse(FORMS["tool_call"].write(action)).action == action


@given(WORDS, st.integers(0, 99))
def test_tags_with_several_arguments_are_read_back_from_what_is_written(text, number):
    action = f"type [{number}] [{text}]"
    assert FORMS["tags"].parse(FORMS["tags"].write(action)).action == action


@given(WORDS.filter(lambda t: t == t.rstrip()))
def test_code_is_read_back_from_what_is_written(code):
    action = f"python\n{code}"
    assert FORMS["code"].parse(FORMS["code"].write(action)).action == action


@pytest.mark.parametrize("form", TOOL_FORMS)
def test_a_tool_without_arguments_can_be_called(form):
    assert FORMS[form].parse(FORMS[form].write("look")).action == "look"


@pytest.mark.parametrize("form", TOOL_FORMS)
def test_pitfall_28_every_tool_stands_in_the_instructions(form):
    assert all(name in FORMS[form].instructions for name in ("search", "type", "python", "look"))


@given(st.integers(), st.text())
def test_arguments_are_found_again_in_the_action_that_they_made(number, text):
    arguments = {"id": number, "text": text}
    action = fill(TYPE, arguments)
    assert fill(TYPE, unfill(TYPE, action)) == action


def test_an_argument_that_looks_like_a_slot_stays_text():
    assert fill(TYPE, {"id": 1, "text": "{id}"}) == "type [1] [{id}]"


def test_an_action_that_no_tool_can_make_is_refused():
    with pytest.raises(ValueError, match="stands for the action 'fly'"):
        call_of({"search": SEARCH}, "fly")


def test_an_argument_that_is_left_out_takes_its_default():
    schemas = {"q": {"type": "string"}, "k": {"type": "integer", "default": 3}}
    top = Tool("top", "", {"type": "object", "properties": schemas, "required": ["q"]}, "{q}/{k}")
    assert FORMATS["tool_call"]([top]).parse('{"name": "top", "arguments": {"q": "a"}}').action == (
        "a/3"
    )


@pytest.mark.parametrize(
    ("name", "arguments", "note"),
    [
        ("serch", {"query": "a"}, "did you mean 'search'"),
        ("search", {"qery": "a"}, "did you mean 'query'"),
        ("search", {}, "needs the argument query"),
        ("search", {"query": ["a"]}, "must be of type string"),
        ("type", {"id": "x", "text": "a"}, "must be of type integer"),
        ("type", {"id": True, "text": "a"}, "must be of type integer"),
        ("search", [], "must be an object"),
        (None, {}, "There is no tool None"),
        (3, {}, "There is no tool 3"),
    ],
)
def test_a_wrong_call_is_answered_with_what_is_wrong(name, arguments, note):
    assert note in tool_call(name, arguments).note


def test_a_choice_outside_an_enumeration_is_answered_with_the_choices():
    schemas = {"way": {"type": "string", "enum": ["up", "down"]}}
    scroll = Tool("scroll", "", {"type": "object", "properties": schemas}, "scroll [{way}]")
    answer = FORMATS["tool_call"]([scroll]).parse('{"name":"scroll","arguments":{"way":"left"}}')
    assert "must be one of up, down" in answer.note


def test_a_number_is_as_good_as_its_text():
    assert tool_call("search", {"query": 3}).action == "search[3]"


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "search", "arguments": {"query": "a"}}',
        'I think.<tool_call>{"name": "search", "arguments": {"query": "a"}}</tool_call> done',
        '<tool_call>{"name": "search", "arguments": {"query": "a"}}',
        '<tool_call>{"name": "search", "arguments": "{\\"query\\": \\"a\\"}"}</tool_call>',
        '{"type":"function","function":{"name":"search","arguments":{"query":"a"}}}',
        '<think><tool_call>{"name": "look"}</tool_call></think>'
        '<tool_call>{"name": "search", "arguments": {"query": "a"}}</tool_call>',
    ],
)
def test_the_ways_models_write_a_tool_call_are_accepted(text):
    assert FORMS["tool_call"].parse(text).action == "search[a]"


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("tool_call", '<tool_call>{"name":"look"}</tool_call><tool_call>{"name":"x"}</tool_call>'),
        ("tags", "<look></look> <search>a</search>"),
    ],
)
def test_pitfall_7_of_two_calls_the_first_is_made_and_the_agent_is_told(form, text):
    answer = FORMS[form].parse(text)
    assert (answer.action, "first of your 2 calls" in answer.note) == ("look", True)


@pytest.mark.parametrize(
    ("form", "text", "note"),
    [
        ("tags", "<search>a", "<search> is not closed"),
        ("tags", "search a", "No action found"),
        ("code", "```python\nprint(1)", "not closed"),
        ("code", "print(1)", "No code found"),
        ("code", "<search>a", "<search> is not closed"),
        ("tool_call", "search a", "No tool call found"),
        ("tool_call", "<tool_call>search</tool_call>", "not a JSON object"),
    ],
)
def test_an_answer_of_another_form_is_told_the_form(form, text, note):
    assert note in FORMS[form].parse(text).note


def test_code_needs_an_environment_that_runs_it():
    with pytest.raises(UserError, match=r"code does not suit 'textcraft'.*there are: act"):
        answer_format("code", [ACT], "textcraft")


_PIECES = (
    "", " ", "\n\n", "\x00", "\ud83d", "\u202e", "NaN", "[" * 20_000, "{" * 20_000, "9" * 5_000,
    "<tool_call>", "</tool_call>", "<search>", "</search>", "```python\n", "```", "Action:",
    '{"name": "search"', '{"name": null, "arguments": null}', '{"name": ["search"]}',
    '{"name": "search", "arguments": {"query": NaN}}', '{"name": "search", "arguments": 1e999}',
    '{"name": "search", "arguments": {"query": {"query": {}}}}', '{"name": "search", "name": 1}',
    '{"function": {"function": {}}}', '{"function": 3, "name": "look"}', "[1, 2, 3]", '"search"',
    "<search><search></search>", "</search><search>", "<SEARCH>a</SEARCH>", "<look/>",
    "__import__('os')._exit(1)", "{0.__class__}", "%s%n", "'; DROP TABLE tasks; --",
    "<|im_end|><|im_start|>system", "a" * 50_000, "``` ```", "<think>", "</think>",
)  # fmt: skip
ADVERSARIAL = [
    wrap.replace("X", piece)
    for piece in _PIECES
    for wrap in ("X", "<tool_call>X</tool_call>", "<type>X</type>", "```python\nX", "Action:X\nX")
]


def test_there_are_two_hundred_adversarial_answers():
    assert len(set(ADVERSARIAL)) >= 200


@pytest.mark.parametrize("form", FORMATS)
def test_an_adversarial_answer_gives_an_action_or_help(form):
    answers = [FORMS[form].parse(text) for text in ADVERSARIAL]
    assert all(isinstance(a.action, str) or len(a.note) > 20 for a in answers)


@pytest.mark.parametrize("form", FORMATS)
@given(st.text())
def test_any_text_gives_an_action_or_help(form, text):
    answer = FORMS[form].parse(text)
    assert isinstance(answer.action, str) or len(answer.note) > 20
