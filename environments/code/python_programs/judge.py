"""Judges a submission: the inputs go into the sandbox, the results come out, and are compared here.

The expected results never enter the sandbox, so no submission can read them.
"""

import json
from typing import Any

from environments.code.sandbox import Sandbox

_HARNESS = """
import json, os, sys
out = os.dup(1)
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
os.dup2(1, 2)
name, inputs = json.load(open("inputs.json"))
results = []
try:
    names = {"__name__": "submission"}
    exec(compile(open("submission.py").read(), "submission.py", "exec"), names)
    for given in inputs:
        try:
            result = ["value", json.loads(json.dumps(names[name](given)))]
        except Exception as error:
            result = ["error", type(error).__name__]
        results.append(result)
except BaseException as error:
    results = [["broken", type(error).__name__ + ": " + str(error)[:200]]]
os.write(out, json.dumps(results).encode())
"""


def judge(
    sandbox: Sandbox, code: str, name: str, inputs: list[Any], expected: list[Any]
) -> tuple[int, str]:
    """Return how many tests pass, and what to tell: never an input or an expected result.

    Raises `EnvironmentFailure` if the sandbox itself fails.
    """
    files = {"submission.py": code, "inputs.json": json.dumps([name, inputs])}
    result = sandbox.run_python(_HARNESS, files)
    if result.status == "time":
        return 0, "it ran too long"
    try:
        got = json.loads(result.output)
    except ValueError:
        return 0, "it gave no results"
    if not isinstance(got, list) or not all(
        isinstance(entry, list) and len(entry) == 2 for entry in got
    ):
        return 0, "it gave no results"
    if got and got[0][0] == "broken":
        return 0, f"it cannot be run: {str(got[0][1])[:300]}"
    if len(got) != len(inputs):
        return 0, "it gave no results"
    passed = sum(
        entry[0] == "value" and same(entry[1], want)
        for entry, want in zip(got, expected, strict=True)
    )
    errors = sorted({str(entry[1])[:60] for entry in got if entry[0] == "error"})
    return passed, f"it raised {', '.join(errors)}" if errors else ""


def same(got: Any, want: Any) -> bool:
    """Equal, and of the same type: 1, 1.0 and True differ."""
    if isinstance(want, list):
        return (
            isinstance(got, list)
            and len(got) == len(want)
            and all(same(g, w) for g, w in zip(got, want, strict=True))
        )
    return type(got) is type(want) and got == want
