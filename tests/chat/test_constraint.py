import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalinginter.chat.constraint import TokenTrie

STOP = 0
ANSWERS = st.sets(
    st.lists(st.integers(1, 5), max_size=4).map(lambda ids: (*ids, STOP)), min_size=1, max_size=12
)


def spelled(trie, state, before=()):
    """Every way through the tree from a state to its end."""
    allowed = trie.allowed(state)
    if not allowed:
        return {before}
    paths = [spelled(trie, trie.advance(state, i), (*before, i)) for i in allowed]
    return set().union(*paths)


@given(ANSWERS)
def test_a_trie_spells_exactly_its_answers(answers):
    trie = TokenTrie.from_sequences(answers)
    assert spelled(trie, trie.start) == answers


@given(ANSWERS)
def test_allowed_ids_ascend(answers):
    trie = TokenTrie.from_sequences(answers)
    state, allowed = trie.start, trie.allowed(trie.start)
    while allowed:
        assert list(allowed) == sorted(set(allowed))
        state = trie.advance(state, allowed[-1])
        allowed = trie.allowed(state)


def test_the_stop_id_is_offered_where_one_answer_begins_another():
    trie = TokenTrie.from_sequences([[7, 8, STOP], [7, 8, 9, STOP]])
    state = trie.advance(trie.advance(trie.start, 7), 8)
    assert trie.allowed(state) == (STOP, 9)


def test_nothing_follows_a_whole_answer():
    trie = TokenTrie.from_sequences([[7, STOP]])
    assert trie.allowed(trie.advance(trie.advance(trie.start, 7), STOP)) == ()


def test_an_id_that_is_not_allowed_is_refused():
    trie = TokenTrie.from_sequences([[7, STOP]])
    with pytest.raises(KeyError):
        trie.advance(trie.start, 8)


@pytest.mark.parametrize("sequences", [[], [[7, STOP], []]])
def test_a_trie_without_an_answer_is_refused(sequences):
    with pytest.raises(ValueError, match="needs at least"):
        TokenTrie.from_sequences(sequences)
