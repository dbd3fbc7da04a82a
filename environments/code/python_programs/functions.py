"""The functions to write: a pipeline of small operations on a list of whole numbers or on a text.

An operation has a sentence and an expression, both with slots for its numbers. The expressions are
ours: joined, they are the reference solution, whose results on drawn inputs are the hidden tests.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["list", "text", "number"]


@dataclass(frozen=True, slots=True)
class Operation:
    """One step: `x` of one kind becomes another value, perhaps of another kind."""

    takes: Kind
    gives: Kind
    sentence: str
    expression: str  # of x, with {0} and {1} for the numbers
    numbers: tuple[tuple[int, int], ...] = ()  # from, to


def _list(sentence: str, expression: str, *numbers: tuple[int, int]) -> Operation:
    return Operation("list", "list", sentence, expression, numbers)


def _text(sentence: str, expression: str, *numbers: tuple[int, int]) -> Operation:
    return Operation("text", "text", sentence, expression, numbers)


OPERATIONS: tuple[Operation, ...] = (
    _list("keep the numbers divisible by {0}", "[v for v in x if v % {0} == 0]", (2, 4)),
    _list("drop the numbers divisible by {0}", "[v for v in x if v % {0} != 0]", (2, 5)),
    _list("keep the numbers greater than {0}", "[v for v in x if v > {0}]", (-9, 9)),
    _list("keep the numbers less than {0}", "[v for v in x if v < {0}]", (-5, 30)),
    _list("add {0} to every number", "[v + {0} for v in x]", (1, 20)),
    _list("multiply every number by {0}", "[v * {0} for v in x]", (2, 9)),
    _list("replace every number by its square", "[v * v for v in x]"),
    _list("replace every number by its absolute value", "[abs(v) for v in x]"),
    _list("replace every number by its remainder mod {0} (never negative)",
          "[v % {0} for v in x]", (3, 12)),
    _list("reverse the order", "x[::-1]"),
    _list("sort in ascending order", "sorted(x)"),
    _list("sort in descending order", "sorted(x, reverse=True)"),
    _list("sort by absolute value, keeping the order of ties", "sorted(x, key=abs)"),
    _list("remove duplicates, keeping the first of each", "list(dict.fromkeys(x))"),
    _list("keep the first {0} elements", "x[:{0}]", (2, 6)),
    _list("drop the first {0} elements", "x[{0}:]", (1, 3)),
    _list("keep every {0}nd/rd/th element, starting with the first", "x[::{0}]", (2, 3)),
    _list("replace the list by its running sums", "[sum(x[: i + 1]) for i in range(len(x))]"),
    _list("replace the list by the differences of neighbours (the later minus the earlier)",
          "[b - a for a, b in zip(x, x[1:])]"),
    _list("move the first {0} elements to the end", "x[{0}:] + x[:{0}]", (1, 3)),
    _list("keep the elements that are greater than the one before them (the first has none before "
          "it and is dropped)", "[b for a, b in zip(x, x[1:]) if b > a]"),
    _list("follow every number by its double", "[w for v in x for w in (v, 2 * v)]"),
    Operation("list", "number", "return the sum", "sum(x)"),
    Operation("list", "number", "return the number of elements", "len(x)"),
    Operation("list", "number", "return the largest, or 0 if there is none", "max(x, default=0)"),
    Operation("list", "number", "return the smallest, or 0 if there is none", "min(x, default=0)"),
    Operation("list", "number", "return the number of different values", "len(set(x))"),
    Operation("list", "number", "return the largest minus the smallest, or 0 if it is empty",
              "max(x, default=0) - min(x, default=0)"),
    Operation("list", "number", "return how often the most frequent value occurs, 0 if it is empty",
              "max(map(x.count, x), default=0)"),
    Operation("list", "text", "return the numbers as text, joined by '-'", "'-'.join(map(str, x))"),
    _text("turn it into upper case", "x.upper()"),
    _text("turn it into lower case", "x.lower()"),
    _text("reverse it", "x[::-1]"),
    _text("remove all vowels (a, e, i, o, u, in either case)",
          "''.join(c for c in x if c not in 'aeiouAEIOU')"),
    _text("remove all spaces", "x.replace(' ', '')"),
    _text("keep every {0}nd/rd/th character, starting with the first", "x[::{0}]", (2, 3)),
    _text("reverse the order of its words (split at spaces)", "' '.join(x.split()[::-1])"),
    _text("reverse every word and join the words by single spaces",
          "' '.join(w[::-1] for w in x.split())"),
    _text("keep the words of at least {0} characters, joined by single spaces",
          "' '.join(w for w in x.split() if len(w) >= {0})", (2, 5)),
    _text("sort its words in alphabetical order (upper case before lower case) and join them by "
          "single spaces", "' '.join(sorted(x.split()))"),
    _text("shift every letter a-z by {0} places in the alphabet, from z on to a; leave the rest",
          "''.join(chr((ord(c) - 97 + {0}) % 26 + 97) if 'a' <= c <= 'z' else c for c in x)",
          (1, 12)),
    _text("write every character {0} times", "''.join(c * {0} for c in x)", (2, 3)),
    _text("remove repeated characters, keeping the first of each", "''.join(dict.fromkeys(x))"),
    Operation("text", "number", "return its length", "len(x)"),
    Operation("text", "number", "return its number of words", "len(x.split())"),
    Operation("text", "number", "return its number of vowels (a, e, i, o, u, in either case)",
              "sum(c in 'aeiouAEIOU' for c in x)"),
    Operation("text", "number", "return its number of different characters", "len(set(x))"),
    Operation("text", "list", "return the list of its words' lengths",
              "[len(w) for w in x.split()]"),
    Operation("text", "list", "return the list of the places of its letter 'a' (from 0)",
              "[i for i, c in enumerate(x) if c == 'a']"),
)  # fmt: skip

_WORDS = (
    "tree",
    "Stone",
    "river",
    "a",
    "Lamp",
    "cloud",
    "ox",
    "Apple",
    "night",
    "bee",
    "of",
    "egg",
)
NUM_TESTS = 12
Step = tuple[int, list[int]]  # position in OPERATIONS, its numbers


_CHOICES = {
    (kind, last): [
        number
        for number, operation in enumerate(OPERATIONS)
        if operation.takes == kind and (last or operation.gives == kind)
    ]
    for kind in ("list", "text")
    for last in (False, True)
}


def draw_steps(chance: random.Random, count: int) -> list[Step]:
    """Draw `count` operations that follow each other; only the last may end in a number."""
    kind: Kind = chance.choice(("list", "text"))
    steps: list[Step] = []
    for place in range(count):
        last = place == count - 1
        number = chance.choice(_CHOICES[kind, last])
        while number in [step[0] for step in steps]:
            number = chance.choice(_CHOICES[kind, last])
        operation = OPERATIONS[number]
        steps.append((number, [chance.randint(low, high) for low, high in operation.numbers]))
        kind = operation.gives
    return steps


def sentence(step: Step) -> str:
    """Return what one step does, in words."""
    number, numbers = step
    text = OPERATIONS[number].sentence.format(*numbers)
    return text.replace("2nd/rd/th", "2nd").replace("3nd/rd/th", "3rd")


def takes_list(steps: list[Step]) -> bool:
    """Return whether the function takes a list; else it takes a text."""
    return OPERATIONS[steps[0][0]].takes == "list"


def describe(name: str, steps: list[Step]) -> str:
    """Return the task: the function's name, what it takes, and its steps."""
    argument = "a list of whole numbers" if takes_list(steps) else "a text"
    listed = "\n".join(f"{place}. {sentence(step)}" for place, step in enumerate(steps, 1))
    return (
        f"Write a function {name}(x). It takes {argument}, does these steps one after the other, "
        f"and returns the result:\n{listed}"
    )


def solution(name: str, steps: list[Step]) -> str:
    """Return the reference solution's source."""
    lines = [f"    x = {OPERATIONS[number].expression.format(*given)}" for number, given in steps]
    return "\n".join([f"def {name}(x):", *lines, "    return x"])


def reference(name: str, steps: list[Step]) -> Callable[[Any], Any]:
    """Return the reference solution, made of this file's expressions and of whole numbers.

    Raises `TypeError` for anything else, since this runs outside the sandbox.
    """
    if not all(type(n) is int for number, given in steps for n in (number, *given)):
        raise TypeError("the numbers of a step must be whole numbers")
    names: dict[str, Any] = {}
    exec(compile(solution(name, steps), "<reference>", "exec"), names)  # noqa: S102
    return names[name]


def draw_inputs(chance: random.Random, steps: list[Step]) -> list[Any]:
    """Draw the inputs of the tests: an empty one, a short one, and others."""
    if takes_list(steps):
        lengths = [0, 1, *(chance.randint(2, 12) for _ in range(NUM_TESTS - 2))]
        return [[chance.randint(-20, 40) for _ in range(length)] for length in lengths]
    lengths = [0, 1, *(chance.randint(2, 7) for _ in range(NUM_TESTS - 2))]
    return [" ".join(chance.choice(_WORDS) for _ in range(length)) for length in lengths]
