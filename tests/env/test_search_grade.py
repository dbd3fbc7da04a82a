"""Search: exact match and F1 as SQuAD's evaluation has them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from environments.search.grade import exact_match, f1, normalize


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The  United States.", "united states"),
        ("a Dog, an APPLE", "dog apple"),
        ("theatre", "theatre"),
        ("U.S.A.", "usa"),
        ("São Paulo", "são paulo"),
        ("The", "the"),
        ("!", "!"),
        (" ", ""),
    ],
)
def test_normalisation(text, normal):
    assert normalize(text) == normal


@pytest.mark.parametrize(
    ("answer", "accepted", "score"),
    [
        ("Paris", ["Paris"], 1.0),
        ("in Paris", ["Paris"], 2 / 3),
        ("Paris Paris", ["Paris"], 2 / 3),
        ("New York City", ["York", "New York"], 0.8),
        ("Rome", ["Paris"], 0.0),
        ("", ["Paris"], 0.0),
    ],
)
def test_f1(answer, accepted, score):
    assert f1(answer, accepted) == pytest.approx(score)


def test_an_empty_answer_matches_nothing():
    assert not exact_match(" ", [" "])


@given(st.text(min_size=1), st.lists(st.text()))
def test_f1_lies_between_0_and_1_and_an_exact_match_has_1(answer, others):
    score = f1(answer, [answer, *others])
    assert 0 <= score <= 1
    assert score == 1.0 or not exact_match(answer, [answer])
