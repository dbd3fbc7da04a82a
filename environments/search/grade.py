"""Exact match and F1 of an answer, as SQuAD's evaluation defines them (arXiv 1606.05250)."""

import re
import string
from collections import Counter
from collections.abc import Iterable

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize(text: str) -> str:
    """Return the text in lower case, without ASCII punctuation, articles and extra spaces. A text
    of nothing else ("A", "!") only loses its case and extra spaces."""
    plain = " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())
    return plain or " ".join(text.lower().split())


def exact_match(answer: str, accepted: Iterable[str]) -> bool:
    """Is the answer one of the accepted ones, both normalised? Nothing is no answer."""
    given = normalize(answer)
    return bool(given) and any(given == normalize(text) for text in accepted)


def f1(answer: str, accepted: Iterable[str]) -> float:
    """Return the best F1 of words against an accepted answer, in [0, 1]."""
    return max((_f1(normalize(answer).split(), normalize(a).split()) for a in accepted), default=0)


def _f1(given: list[str], wanted: list[str]) -> float:
    common = sum((Counter(given) & Counter(wanted)).values())
    return 2 * common / (len(given) + len(wanted)) if common else 0.0
