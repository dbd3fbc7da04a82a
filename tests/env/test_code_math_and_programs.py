"""python_math and python_programs: answers, rewards, hidden tests, hostile submissions."""

import random
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from environments.code.python_math.env import PythonMath, read_number, split_action
from environments.code.python_math.problems import PROBLEMS, chain
from environments.code.python_programs.env import PythonPrograms
from environments.code.python_programs.functions import draw_inputs, draw_steps, reference, solution
from environments.code.python_programs.judge import judge, same
from environments.code.sandbox import Limits, make_sandbox
from scalinginter.chat.formats import answer_format
from scalinginter.env.check import check_env
from scalinginter.errors import UserError
from scalinginter.types import Task

SMALL = {"num_train": 16, "num_validation": 8, "num_test": 8, "parts": [1, 2]}


@pytest.fixture
def math():
    """A maths environment that is closed afterwards."""
    env = PythonMath(**SMALL)
    yield env
    env.close()


@pytest.fixture
def programs():
    """A programming environment that is closed afterwards."""
    env = PythonPrograms(**SMALL)
    yield env
    env.close()


def _primes(env: PythonMath, count: int = 1) -> None:
    env.reset(
        options={"task": Task("x", "python_math", {"parts": [["primes", [1000, 100]]] * count})}
    )


@pytest.mark.parametrize("env_id", ["python_math", "python_programs"])
def test_it_passes_the_conformance_check(env_id: str):
    report = check_env(env_id, SMALL, num_tasks=2)
    assert report.ok, str(report)


def test_expert_plans_span_two_to_forty_turns():
    for env in (PythonMath(), PythonPrograms()):
        lengths = {task.required_turns for task in env.tasks("train")}
        assert (min(lengths), max(lengths)) == (2, 40)


# --- maths ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "arguments", "answer"),
    [
        ("divisors", [28], 56),
        ("primes", [10, 20], 6),
        ("power", [3, 4, 50], 31),
        ("multiples", [12, 2, 3, 4], 5),
        ("recurrence", [5, 1, 1, 1, 1], 5),
        ("coins", [5, 1, 2, 5], 4),
        ("circle", [7, 3], 4),
        ("collatz", [10], 9),
        ("factorial", [10], 27),
        ("order", [2, 7], 3),
        ("dice", [7, 2, 6], Fraction(1, 6)),
        ("robot", [1, 2, 1], 2),
        ("paths", [2, 2, 99], 2),
    ],
)
def test_an_answer_is_what_is_known(kind: str, arguments: list[int], answer: Fraction):
    assert PROBLEMS[kind].solve(*arguments) == answer


def test_the_linear_system_is_solved():
    x = PROBLEMS["system"].solve(1, 1, 1, 0, 0, 0)
    assert x == 0


@pytest.mark.parametrize("kind", PROBLEMS)
def test_the_experts_program_prints_the_answer(kind: str):
    problem = PROBLEMS[kind]
    arguments = problem.draw(random.Random(kind))
    printed = make_sandbox(Limits()).run_python(problem.program(arguments)).output
    assert printed.strip() == str(problem.solve(*arguments))


def test_a_part_depends_on_the_answer_of_the_part_before():
    first, second = chain([["primes", [1000, 100]], ["divisors", [10_000]]])
    assert second[1] == [10_000 + first[2]]


def test_variables_are_kept_within_an_episode_and_not_over_a_reset(math):
    _primes(math)
    math.step("python\nx = 41")
    kept = math.step("python x + 1")[0]
    _primes(math)
    assert (kept, "NameError" in math.step("python x")[0]) == ("42", True)


def test_each_right_part_earns_its_share_and_the_last_ends(math):
    _primes(math, 2)
    first = math.step("answer 16")
    second = math.step(f"answer {chain([['primes', [1000, 100]]] * 2)[1][2]}")
    assert (first[1:3], second[1:3], second[4]["success"]) == ((0.5, False), (0.5, True), True)


def test_pitfall_27_a_wrong_answer_ends_the_episode_without_a_hint(math):
    _primes(math)
    text, reward, over, _, info = math.step("answer 17")
    assert (reward, over, info["success"], "16" in text) == (0.0, True, False, False)


@pytest.mark.parametrize(
    ("text", "number"),
    [("42", 42), ("-3/7", Fraction(-3, 7)), ("1,000", 1000), ("0.5", Fraction(1, 2)), ("42.", 42)],
)
def test_ways_to_write_a_number(text: str, number: Fraction):
    assert read_number(text) == number


@given(st.text(max_size=60))
def test_any_text_is_a_number_or_not_and_never_raises(text: str):
    assert read_number(text) is None or isinstance(read_number(text), Fraction)


@pytest.mark.parametrize("text", ["1e999999999", "1/0", "9" * 5000, "__import__('os')", "nan"])
def test_pitfall_30_an_answer_is_read_and_never_evaluated(text: str):
    assert read_number(text) is None


def test_code_keeps_its_lines_and_indentation():
    assert split_action("python\n  if x:\n    y") == ("python", "  if x:\n    y")


@pytest.mark.parametrize("form", ["tool_call", "code", "tags"])
def test_several_lines_of_code_go_through_the_answer_formats(math, form: str):
    action = "python\nfor i in range(2):\n    print(i)"
    fmt = answer_format(form, math.tools(), "python_math")
    assert fmt.parse(fmt.write(action)).action == action


def test_code_that_never_ends_is_told_and_the_episode_goes_on():
    env = PythonMath(**SMALL, wall_s=1.0)
    _primes(env)
    told = env.step("python\nwhile True: pass")[0]
    right = env.step("answer 16")[1]
    env.close()
    assert ("ran longer" in told, right) == (True, 1.0)


def test_an_unknown_kind_of_problem_names_the_nearest():
    with pytest.raises(UserError, match="did you mean 'primes'"):
        PythonMath(kinds=["prime"])


# --- programs ---------------------------------------------------------------------------------


def _evens(env: PythonPrograms) -> None:
    data = {"functions": [[[0, [2]], [22, []]]], "tests": 1}
    env.reset(options={"task": Task("x", "python_programs", data)})


def test_the_reference_does_what_the_sentences_say():
    solve = reference("f", [(0, [2]), (22, [])])  # keep the even numbers, return the sum
    assert solve([1, 2, 3, 4]) == 6


@given(st.integers(0, 10**6), st.integers(1, 6))
@settings(max_examples=60)
def test_every_pipeline_takes_every_drawn_input(seed: int, count: int):
    chance = random.Random(seed)
    steps = draw_steps(chance, count)
    solve = reference("f", steps)
    assert all(isinstance(solve(given), int | str | list) for given in draw_inputs(chance, steps))


def test_pitfall_30_a_reference_is_made_of_numbers_only():
    with pytest.raises(TypeError, match="whole numbers"):
        reference("f", [(0, ["__import__('os').getpid()"])])


def test_an_accepted_function_earns_and_ends(programs):
    _evens(programs)
    answer = programs.step("submit\ndef f1(x):\n    return sum(v for v in x if v % 2 == 0)")
    assert (answer[1], answer[2], answer[4]["success"]) == (1.0, True, True)


def test_a_wrong_submission_costs_an_attempt_and_the_last_ends_the_episode(programs):
    _evens(programs)
    first = programs.step("submit\ndef f1(x): return 0")
    last = programs.step("submit\ndef f1(x): return 0")
    assert ("1 attempt left" in first[0], first[2], last[1:3]) == (True, False, (0.0, True))


CHEATS = {
    "it reads files": "import os\ndef f1(x): return open('/etc/passwd').read()",
    "it looks for expected results in the callers": (
        "import sys\ndef f1(x):\n    f = sys._getframe(1)\n"
        "    return {**f.f_globals, **f.f_locals}.get('expected', [0])[0]"
    ),
    "it looks for expected results in the folder": (
        "import os, json\ndef f1(x):\n    return json.load(open('expected.json'))[0]"
    ),
    "it returns something equal to everything": (
        "class A(int):\n    def __eq__(self, o): return True\ndef f1(x): return A()"
    ),
    "it writes results of its own": (
        "import os\nfor fd in range(3, 20):\n    try: os.write(fd, b'[[\"value\", 0]]')\n"
        "    except OSError: pass\ndef f1(x): return 0"
    ),
    "it exits early": "import os\ndef f1(x): os._exit(0)",
    "it never ends": "def f1(x):\n    while True: pass",
    "it is not Python": "def f1(x:",
    "it has no such function": "def g(x): return 1",
    "it prints without end": "def f1(x):\n    while True: print('x' * 1000)",
    "it returns an endless text": "def f1(x): return 'x' * 10**8",
    "it replaces json": "import json\njson.dumps = lambda *a: 'true'\ndef f1(x): return 0",
}


@pytest.mark.parametrize("code", CHEATS.values(), ids=CHEATS)
def test_a_submission_does_not_pass_when(code: str):
    inputs, expected = [[1, 2], [4]], [2, 4]
    sandbox = make_sandbox(Limits(cpu_s=1, wall_s=2.0))
    passed, note = judge(sandbox, code, "f1", inputs, expected)
    assert passed == 0
    assert "expected" not in note or "No such file" in note


@pytest.mark.parametrize(("got", "want"), [(1, True), (1.0, 1), ([1], [1.0]), ("1", 1), (None, 0)])
def test_results_of_another_type_are_not_the_same(got: object, want: object):
    assert not same(got, want)


def test_the_reference_solution_passes_its_own_tests():
    chance = random.Random(5)
    steps = draw_steps(chance, 3)
    inputs = draw_inputs(chance, steps)
    expected = [reference("f1", steps)(given) for given in inputs]
    sandbox = make_sandbox(Limits())
    assert judge(sandbox, solution("f1", steps), "f1", inputs, expected) == (len(inputs), "")
