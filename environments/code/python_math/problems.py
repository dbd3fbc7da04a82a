"""The problems: a text with numbers in it, and a function that computes the exact answer.

A function needs nothing but `Fraction`, since its source is also the expert's program. Its first
argument is the one that depends on the answer of the part before.
"""

import inspect
import random
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

Number = int | Fraction


@dataclass(frozen=True, slots=True)
class Problem:
    """One kind of problem."""

    text: str  # with a slot per argument: {0} is the first
    solve: Callable[..., Number]
    ranges: tuple[
        tuple[int, int], ...
    ]  # from, to, of each argument; the first is shifted in chains

    def draw(self, chance: random.Random) -> list[int]:
        """Draw the arguments."""
        return [chance.randint(low, high) for low, high in self.ranges]

    def shifted(self, arguments: list[int], previous: Number | None) -> list[int]:
        """Return the arguments with the first one moved by the answer of the part before."""
        if previous is None:
            return arguments
        low, high = self.ranges[0]
        span = high - low + 1
        moved = low + (arguments[0] - low + abs(Fraction(previous).numerator)) % span
        return [moved, *arguments[1:]]

    def ask(self, arguments: list[int]) -> str:
        """Return the question."""
        return self.text.format(*arguments)

    def program(self, arguments: list[int]) -> str:
        """Return a program that prints the answer."""
        call = ", ".join(map(str, arguments))
        source = inspect.getsource(self.solve)
        imports = "from fractions import Fraction\n\n" if "Fraction" in source else ""
        return f"{imports}{source}\nprint({self.solve.__name__}({call}))"


def divisor_sum(n: int) -> int:
    total = 0
    for d in range(1, int(n**0.5) + 1):
        if n % d == 0:
            total += d + (n // d if d * d != n else 0)
    return total


def primes_between(a: int, width: int) -> int:
    return sum(all(n % d for d in range(2, int(n**0.5) + 1)) for n in range(a, a + width + 1))


def power_digits(a: int, b: int, m: int) -> int:
    return pow(a, b, m)


def either_or_multiples(n: int, p: int, q: int, r: int) -> int:
    return sum((k % p == 0 or k % q == 0) and k % r != 0 for k in range(1, n + 1))


def recurrence(n: int, a: int, b: int, p: int, q: int) -> int:
    for _ in range(n - 1):
        a, b = b, (p * b + q * a) % 10007
    return a


def lattice_paths(n: int, m: int, k: int) -> int:
    ways = [[0] * (m + 1) for _ in range(n + 1)]
    ways[0][0] = 1
    for x in range(n + 1):
        for y in range(m + 1):
            if (x, y) != (0, 0):
                blocked = (x * y) % k == 1
                left, below = (ways[x - 1][y] if x else 0), (ways[x][y - 1] if y else 0)
                ways[x][y] = 0 if blocked else left + below
    return ways[n][m]


def coin_ways(n: int, a: int, b: int, c: int) -> int:
    ways = [1] + [0] * n
    for coin in sorted({a, b, c}):
        for total in range(coin, n + 1):
            ways[total] += ways[total - coin]
    return ways[n]


def last_in_circle(n: int, k: int) -> int:
    place = 0
    for size in range(2, n + 1):
        place = (place + k) % size
    return place + 1


def longest_collatz(n: int) -> int:
    best, longest = 1, 0
    for start in range(1, n + 1):
        x, steps = start, 0
        while x != 1:
            x, steps = (x // 2 if x % 2 == 0 else 3 * x + 1), steps + 1
        if steps > longest:
            best, longest = start, steps
    return best


def digits_of_factorial(n: int) -> int:
    product = 1
    for k in range(2, n + 1):
        product *= k
    return sum(map(int, str(product)))


def order_modulo(a: int, p: int) -> int:
    prime = p
    while any(prime % d == 0 for d in range(2, int(prime**0.5) + 1)) or a % prime == 0:
        prime += 1
    power, order = a % prime, 1
    while power != 1:
        power, order = power * a % prime, order + 1
    return order


def dice_chance(total: int, dice: int, sides: int) -> Fraction:
    ways = {0: 1}
    for _ in range(dice):
        after = {}
        for have, count in ways.items():
            for face in range(1, sides + 1):
                after[have + face] = after.get(have + face, 0) + count
        ways = after
    return Fraction(ways.get(total, 0), sides**dice)


def linear_system(a: int, b: int, c: int, d: int, e: int, f: int) -> Fraction:
    rows = [[a, 2, 1, d], [1, b + 7, 3, e], [2, 1, c + 9, f]]
    rows = [[Fraction(x) for x in row] for row in rows]
    for i in range(3):
        pivot = next(r for r in range(i, 3) if rows[r][i] != 0)
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [x / rows[i][i] for x in rows[i]]
        for r in range(3):
            if r != i:
                rows[r] = [x - rows[r][i] * y for x, y in zip(rows[r], rows[i])]  # noqa: B905
    return rows[0][3] + rows[1][3] + rows[2][3]


def robot_walk(n: int, a: int, b: int) -> int:
    x, y, state = 0, 0, 1
    visited = {(0, 0)}
    for _ in range(n):
        state = (a * state + b) % 1009
        dx, dy = [(1, 0), (0, 1), (-1, 0), (0, -1)][state % 4]
        x, y = x + dx, y + dy
        visited.add((x, y))
    return len(visited)


PROBLEMS: dict[str, Problem] = {
    "divisors": Problem(
        "What is the sum of all positive divisors of {0}?", divisor_sum, ((10_000, 999_999),)
    ),
    "primes": Problem(
        "How many primes p satisfy {0} <= p <= {0} + {1}?",
        primes_between,
        ((1_000, 60_000), (100, 600)),
    ),
    "power": Problem(
        "What is the remainder of {0}^{1} divided by {2}?",
        power_digits,
        ((100, 9_999), (1_000, 99_999), (1_000, 99_999)),
    ),
    "multiples": Problem(
        "How many integers from 1 to {0} are divisible by {1} or by {2}, but not by {3}?",
        either_or_multiples,
        ((1_000, 20_000), (2, 9), (10, 19), (20, 40)),
    ),
    "recurrence": Problem(
        "A sequence starts with s_1 = {1}, s_2 = {2}, and goes on with "
        "s_(n+2) = ({3} * s_(n+1) + {4} * s_n) mod 10007. What is s_{0}?",
        recurrence,
        ((100, 5_000), (1, 50), (1, 50), (2, 30), (2, 30)),
    ),
    "paths": Problem(
        "A piece goes from (0, 0) to ({0}, {1}) in steps of (+1, 0) and (0, +1). It may not enter "
        "a point (x, y) for which x * y leaves the remainder 1 when divided by {2}. "
        "How many paths are there?",
        lattice_paths,
        ((6, 14), (6, 14), (3, 9)),
    ),
    "coins": Problem(
        "In how many ways can {0} cents be paid with coins of {1}, {2} and {3} cents? "
        "The order of the coins does not matter; a kind named twice counts once.",
        coin_ways,
        ((100, 900), (1, 4), (5, 12), (13, 40)),
    ),
    "circle": Problem(
        "{0} people, numbered 1 to {0}, stand in a circle. Counting starts at person 1, and every "
        "{1}-th person still in the circle leaves it. Who is the last one left?",
        last_in_circle,
        ((20, 2_000), (2, 30)),
    ),
    "collatz": Problem(
        "A number n is followed by n / 2 if it is even and by 3n + 1 if it is odd. Which start "
        "from 1 to {0} takes the most steps to reach 1? If several do, give the smallest.",
        longest_collatz,
        ((50, 1_500),),
    ),
    "factorial": Problem(
        "What is the sum of the decimal digits of {0}! (factorial)?",
        digits_of_factorial,
        ((20, 400),),
    ),
    "order": Problem(
        "Let p be the smallest prime that is at least {1} and does not divide {0}. What is the "
        "smallest k >= 1 for which {0}^k leaves the remainder 1 when divided by p?",
        order_modulo,
        ((2, 60), (100, 4_000)),
    ),
    "dice": Problem(
        "{1} fair dice with {2} sides each (numbered from 1) are thrown. What is the probability "
        "that they show {0} in total? Give a fraction.",
        dice_chance,
        ((6, 30), (3, 6), (4, 12)),
    ),
    "system": Problem(
        "Solve {0}x + 2y + z = {3}, x + ({1} + 7)y + 3z = {4}, 2x + y + ({2} + 9)z = {5}. "
        "What is x + y + z? Give a fraction or a whole number.",
        linear_system,
        ((5, 30), (1, 20), (1, 20), (-40, 40), (-40, 40), (-40, 40)),
    ),
    "robot": Problem(
        "A robot stands at (0, 0) with the state s = 1. At each step s becomes ({1} * s + {2}) mod "
        "1009; then it moves by (1, 0), (0, 1), (-1, 0) or (0, -1) if s mod 4 is 0, 1, 2 or 3. "
        "How many different points has it stood on after {0} steps, the first included?",
        robot_walk,
        ((50, 2_000), (2, 1_000), (1, 1_000)),
    ),
}


def chain(parts: list[list[Any]]) -> list[tuple[Problem, list[int], Number]]:
    """Return `(problem, arguments, answer)` of each part: `["primes", [1000, 200]]` names one."""
    solved: list[tuple[Problem, list[int], Number]] = []
    for kind, drawn in parts:
        problem = PROBLEMS[kind]
        arguments = problem.shifted(drawn, solved[-1][2] if solved else None)
        solved.append((problem, arguments, problem.solve(*arguments)))
    return solved
