"""Search: actions, answers, tasks, the atlas."""

from collections import Counter

import gymnasium
import pytest

from environments.search.atlas import WORLDS, atlas_index, load_atlas
from environments.search.env import HINT, NOTHING, Search
from environments.search.index import Document, Index
from environments.search.questions import split_of
from scalinginter.env.base import SPLITS
from scalinginter.env.check import check_env
from scalinginter.errors import UserError
from scalinginter.types import Task

TINY = {"world": "cities", "brief": True, "topk": 1, "max_hops": 6}


def _started(number: int = 0, **params: object) -> Search:
    env = Search(**{"world": "countries"} | params)
    env.reset(options={"task": env.tasks("test")[number]})
    return env


@pytest.mark.parametrize("params", [{}, TINY, {"world": "countries", "score": "f1"}])
def test_search_keeps_the_contract(params):
    report = check_env("search", params, num_tasks=12)
    assert report.ok, report


# --- actions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "action", ["search[France]", " SEARCH [ france ] ", "search[France].", 'search["France"]\n']
)
def test_pitfall_28_every_way_to_write_a_search_is_accepted(action):
    assert _started().step(action)[0].startswith("Doc 1 (title: France) France is a country in")


@pytest.mark.parametrize("action", ["search", "search[]", "serach[x]", "search[x", "[x]", "answer"])
def test_a_malformed_action_names_the_accepted_forms(action):
    assert _started().step(action) == (HINT, 0.0, False, False, {"success": False})


def test_a_search_without_words_finds_nothing():
    assert _started().step("search[?!]")[0] == NOTHING


def test_query_syntax_means_nothing():
    env = _started()
    plain = env.step("search[title paris not france or 1]")[0]
    assert env.step('search[title:"paris" NOT (france OR +1]')[0] == plain


def test_a_repeated_search_finds_the_same_documents():
    env = _started()
    assert len({env.step("search[airport in France]")[0] for _ in range(4)}) == 1


def test_brief_documents_show_the_relations_that_the_query_names():
    env = _started(world="cities", brief=True, topk=1, relations=["north", "east"])
    said = [
        env.step(f"search[ {query} ]")[0] for query in ("north of Lima", "Lima", "west of Lima")
    ]
    assert said == [
        "Lima : north Guayaquil . 2 ?",
        "Lima : north Guayaquil . east La Paz . 3 ?",
        "Lima : north Guayaquil . east La Paz . 4 ?",
    ]


def test_snippets_are_cut():
    said = _started(snippet_chars=40, topk=1).step("search[France]")[0]
    assert said == "Doc 1 (title: France) France is a country in Europe. Its ca..."


def test_filling_a_tool_gives_an_action_that_is_understood():
    search, _ = Search().tools()
    assert _started().step(search.template.format(query="France"))[0].startswith("Doc 1")


# --- answers ----------------------------------------------------------------------------------


def test_pitfall_27_right_and_wrong_answers_get_the_same_words():
    right, wrong = _started(), _started()
    accepted = right.step((right.expert_plan() or [])[-1])
    assert accepted[0] == wrong.step("answer[certainly not this]")[0]


def test_a_wrong_answer_ends_the_episode():
    env = _started()
    assert env.step("answer[certainly not this]")[1:] == (0.0, True, False, {"success": False})
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step("answer[another try]")


def test_every_spelling_of_an_answer_is_accepted():
    task = next(t for t in Search().tasks("train") if len(t.data["answers"]) > 1)
    env = Search()
    rewards = []
    for answer in task.data["answers"]:
        env.reset(options={"task": task})
        rewards.append(env.step(f"answer[{answer}]")[1])
    assert rewards == [1.0] * len(task.data["answers"])


def test_f1_rewards_a_part_of_the_answer_without_success():
    env = Search(score="f1")
    data = {"question": "Where?", "start": "Karachi", "answers": ["Pakistan"], "searches": ["x"]}
    env.reset(options={"task": Task("x", "search", data)})
    _, reward, terminated, _, info = env.step("answer[Pakistan Asia]")
    assert (reward, terminated, info["success"]) == (pytest.approx(2 / 3), True, False)


# --- tasks ------------------------------------------------------------------------------------


def test_questions_of_every_number_of_hops_are_equally_many():
    hops = Counter(task.required_turns for task in Search().tasks("test"))
    assert hops == dict.fromkeys(range(2, 14), 10)


@pytest.mark.parametrize("world", WORLDS)
def test_no_two_splits_share_a_start_or_a_final_subject(world):
    env = Search(world=world)
    ends = {
        split: {end for t in env.tasks(split) for end in (t.data["start"], t.data["searches"][-1])}
        for split in SPLITS
    }
    assert all(split_of(title) == split for split, titles in ends.items() for title in titles)


def test_no_chain_visits_an_entity_twice():
    chains = [task.data["searches"] for task in Search(**TINY).tasks("train")]
    assert all(len(set(chain)) == len(chain) for chain in chains)


def test_every_document_that_a_question_needs_is_found_first():
    index = atlas_index("atlas")
    titles = {s for split in SPLITS for t in Search().tasks(split) for s in t.data["searches"]}
    missed = [t for t in titles if index.search(t, 1)[0].document.title != t]
    assert not missed


def test_of_the_documents_of_a_chain_only_the_last_holds_the_answer():
    atlas = load_atlas("atlas")
    for task in Search().tasks("test"):
        read = [atlas.get(title) for title in task.data["searches"]]
        holds = [task.data["answers"][0] in {f.value for f in e.facts} for e in read if e]
        assert holds == [False] * (len(read) - 1) + [True], task.id


def test_the_words_of_held_out_tasks_are_in_the_corpus():
    env = Search(**TINY)
    words = set(" ".join(env.corpus()).replace("[", " ").replace("]", " ").split())
    for task in env.tasks("test"):
        observation, _ = env.reset(options={"task": task})
        said = [observation, *(env.step(action)[0] for action in env.expert_plan() or [])]
        assert set(" ".join(said).split()) <= words


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"world": "countrys"}, "did you mean 'countries'"),
        ({"score": "bleu"}, "one of em, f1"),
        ({"min_hops": 4, "max_hops": 3}, "max_hops must be a whole number from 4 to 40"),
        ({"relations": ["nort"]}, "did you mean 'north'"),
        ({"relations": "north"}, "must be a list of keys"),
        ({"topk": 0}, "topk must be a whole number from 1 to 20"),
        ({"documents": "d.jsonl"}, "documents needs questions"),
        ({"retriever": "localhost:8000"}, "must be a URL"),
        ({"questions": {"tarin": "q.jsonl"}}, "did you mean 'train'"),
        ({"brief": True, "questions": "q.jsonl"}, "leave out brief"),
    ],
)
def test_a_wrong_parameter_is_refused_with_help(params, said):
    with pytest.raises(UserError, match=said):
        Search(**params)


def test_questions_can_take_forty_searches():
    env = Search(min_hops=40, max_hops=40, num_train=1, num_validation=1, num_test=1)
    assert env.tasks("test")[0].required_turns == 41


def test_only_the_relations_that_were_asked_for_occur():
    env = Search(world="cities", relations=["north", "east"], brief=True, topk=1)
    env.reset(options={"task": env.tasks("test")[5]})
    said = env.step(f"search[{env.tasks('test')[5].data['start']}]")[0]
    keys = {"country", "north", "east", "south", "west", "larger", "airport", "population", "zone"}
    assert keys & set(said.split()) == {"north", "east"}
    assert keys & set(" ".join(t.data["brief"] for t in env.tasks("test")).split()) == {
        "north",
        "east",
    }


def test_a_world_without_that_many_questions_says_so():
    with pytest.raises(UserError, match=r"no 100000 test questions of 1 to 1 hops, only \d+"):
        Search(world="countries", max_hops=1, num_test=100_000, num_train=1).tasks("test")


# --- the index --------------------------------------------------------------------------------


def test_equal_documents_come_in_their_order():
    index = Index([Document(str(i), "", "the same words") for i in range(300)])
    assert [hit.document.id for hit in index.search("same", 5)] == ["0", "1", "2", "3", "4"]


def test_a_query_that_holds_a_title_finds_it_first():
    names = ["York", "New York", "York New", "Yorkshire terriers of New York city"]
    index = Index([Document(name, name, "north of New York") for name in names])
    assert index.search("what lies north of New York?", 2)[0].document.id == "New York"


def test_accents_and_case_do_not_matter():
    index = Index([Document("0", "Zażółć", "Łódź"), Document("1", "Ærø", "Straße")])
    found = [index.search(query, 1)[0].document.id for query in ("zazolc", "LODZ", "aero")]
    assert found == ["0", "0", "1"]
