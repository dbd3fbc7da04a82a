"""browsergym: what a model writes becomes one call of literals, or a hint; the real package."""

import importlib.util

import gymnasium
import pytest
from hypothesis import given
from hypothesis import strategies as st

from environments.web.browsergym.grammar import FUNCTIONS, Call, form, parse_call, tools
from environments.web.chromium import launch
from scalinginter.env.registry import make
from scalinginter.errors import UserError


def _has(*modules: str) -> bool:
    return all(importlib.util.find_spec(module) is not None for module in modules)


def _has_browser() -> bool:
    try:
        launch.executable()
    except UserError:
        return False
    return _has("playwright")


needs_browsergym = pytest.mark.skipif(
    not (_has_browser() and _has("browsergym") and _has("browsergym.miniwob", "miniwob")),
    reason="needs Chromium and browsergym, whose pin of playwright is not ours: see its card",
)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("click('a12')", "click('a12')"),
        ("click(12)", "click('12')"),
        (" `fill('7', \"it's\")` ", "fill('7', \"it's\")"),
        ("fill(7, it's, here)", "fill('7', \"it's, here\")"),
        ("fill(value='x', bid='7')", "fill('7', 'x')"),
        ("fill(7, )", "fill('7', '')"),
        ("scroll(0, -200)", "scroll(0.0, -200.0)"),
        ("tab_focus(1)", "tab_focus(1)"),
        ("go_back()", "go_back()"),
        ("goto('https://site.test/a')", "goto('https://site.test/a')"),
        ("send_msg_to_user(__import__('os'))", "send_msg_to_user(\"__import__('os')\")"),
    ],
)
def test_a_call_is_read_and_written_anew(text: str, code: str):
    call = parse_call(text)
    assert isinstance(call, Call)
    assert call.code == code


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("", "Write one call of: click"),
        ("clik('12')", "did you mean 'click'"),
        ("click('12'); click('13')", "bid of click(bid) must be an id"),
        ("click(\0)", "must be an id"),
        ("fill('\\d', 'x')", "must be an id"),
        ("click()", "Write click as: click(bid)"),
        ("fill('7')", "Write fill as: fill(bid, value)"),
        ("__import__('os').system('x')", "one call"),
        ("upload_file('7', '/etc/passwd')", "one call"),
        ("goto('file:///etc/passwd')", "is no http address"),
        ("goto('javascript:alert(1)')", "is no http address"),
        ("scroll(a, b)", "delta_x of scroll(delta_x, delta_y) must be a number"),
        ("scroll(1e999, 0)", "must be a number"),
        ("noop(1000000)", "waits at most 5000 ms"),
        ("tab_focus(0.5)", "must be a integer"),
        ("[" * 5000, "one call"),
        ("click(" + "[" * 3000, "one call"),
    ],
)
def test_pitfall_30_what_is_no_call_gets_a_hint_and_is_never_run(text: str, hint: str):
    said = parse_call(text)
    assert isinstance(said, str)
    assert hint in said


def test_goto_opens_the_given_origins_only():
    said = parse_call("goto('http://127.0.0.1:5000/')", ("http://site.test",))
    assert said == "This browser opens http://site.test only."


@given(st.text(max_size=80), st.sampled_from(sorted(FUNCTIONS)))
def test_pitfall_30_any_text_gives_a_call_of_literals_or_a_hint(text: str, name: str):
    for written in (text, f"{name}({text})", f"{name}('1', {text})"):
        said = parse_call(written)
        assert isinstance(said, str) or said.name in FUNCTIONS


@pytest.mark.parametrize("tool", tools(), ids=lambda tool: tool.name)
def test_pitfall_28_a_tools_call_is_accepted(tool):
    values = {"string": "http://site.test/", "number": "3", "integer": "1"}
    action = tool.template
    for name, about in tool.parameters["properties"].items():
        value = "a12" if name.endswith("bid") else values[about["type"]]
        action = action.replace(f"{{{name}}}", value)
    call = parse_call(action)
    assert isinstance(call, Call)
    assert form(tool.name).startswith(call.name)


@pytest.mark.skipif(not _has_browser() or _has("browsergym"), reason="browsergym is installed")
def test_without_the_package_the_error_says_how_to_install_it():
    with pytest.raises(UserError, match="pip install --no-deps browsergym-core"):
        make("browsergym", tasks=["miniwob.click-test"])


# --- with the package


@pytest.fixture(name="env")
def _env():
    from environments.web.browsergym.playwright import shutdown

    env = make("browsergym", tasks=["miniwob.click-test", "miniwob.login-user"], num_test=4)
    yield env
    env.close()
    shutdown()


@needs_browsergym
def test_the_splits_have_other_seeds_and_the_names_take_turns(env):
    tasks = {split: env.tasks(split) for split in ("train", "validation", "test")}
    assert [task.id for task in tasks["test"][:3]] == [
        "test/miniwob.click-test/000000",
        "test/miniwob.login-user/000000",
        "test/miniwob.click-test/000001",
    ]
    seeds = [{task.data["seed"] for task in found} for found in tasks.values()]
    assert not seeds[0] & seeds[1]
    assert not seeds[1] & seeds[2]


@needs_browsergym
def test_a_task_is_solved_through_the_tree_and_the_end_is_the_end(env):
    seen = env.reset(options={"task": env.tasks("test")[0]})[0]
    (line,) = [line for line in seen.split("\n") if "button 'Click Me!'" in line]
    assert "did you mean 'click'" in env.step("clik('1')")[0]
    answer = (0, 0.0, False)
    for _ in range(20):  # BrowserGym gives a click half a second, which a busy machine may miss
        answer = env.step(f"click({line.strip()[1:].partition(']')[0]})")
        if answer[2]:
            break
    assert (answer[1], answer[2], answer[4]) == (1.0, True, {"success": True})
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step("noop(0)")


@needs_browsergym
def test_pitfall_31_a_reset_shows_nothing_of_the_episode_before(env):
    task = env.tasks("test")[1]
    first = env.reset(options={"task": task})[0]
    env.step("fill('16', 'left behind')")
    assert env.reset(options={"task": task})[0] == first


@needs_browsergym
@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"tasks": ["miniwob.click-tset"]}, "did you mean 'miniwob.click-test'"),
        ({"tasks": ["nothere.x"]}, "pip install --no-deps browsergym-nothere"),
        ({"tasks": []}, "tasks must be a list of names"),
        ({"tasks": ["openended"], "split_by": "page"}, "split_by must be seed or task"),
        ({"tasks": ["openended"], "delay_s": -1}, "delay_s must be from 0"),
        ({"tasks": ["openended"], "num_test": 0}, "num_test must be a whole number"),
    ],
)
def test_wrong_parameters_are_named(params: dict, message: str):
    with pytest.raises(UserError, match=message):
        make("browsergym", **params)
