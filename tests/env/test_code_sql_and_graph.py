"""sql and knowledge_graph: tasks, guards, answers."""

import sqlite3

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from environments.code.knowledge_graph.env import KnowledgeGraph
from environments.code.knowledge_graph.graph import INVERSE, SINGLE, make_graph
from environments.code.knowledge_graph.questions import ask, gold
from environments.code.sql.database import Database, Refused
from environments.code.sql.env import Sql
from scalinginter.env.base import SPLITS
from scalinginter.env.check import check_env
from scalinginter.errors import UserError
from scalinginter.types import Task

GRAPH = make_graph(0)
PERSON = next(name for name, kind in GRAPH.types.items() if kind == "person")


@pytest.mark.parametrize(
    ("env_id", "params"),
    [
        ("knowledge_graph", {}),
        ("knowledge_graph", {"brief": True, "max_hops": 6}),
        ("sql", {}),
        ("sql", {"one_table": False, "max_hops": 6}),
    ],
)
def test_it_passes_the_conformance_check(env_id: str, params: dict):
    report = check_env(env_id, params, num_tasks=4)
    assert report.ok, str(report)


@pytest.mark.parametrize("env", [KnowledgeGraph(), Sql()], ids=["knowledge_graph", "sql"])
def test_expert_plans_span_two_to_forty_turns(env):
    lengths = [task.required_turns for task in env.tasks("train")]
    assert min(lengths) <= 2
    assert max(lengths) >= 41


@pytest.mark.parametrize("env", [KnowledgeGraph(), Sql()], ids=["knowledge_graph", "sql"])
def test_the_expert_takes_as_many_turns_as_a_task_says(env):
    for split in SPLITS:
        for task in env.tasks(split)[:40]:
            env.reset(options={"task": task})
            assert len(env.expert_plan()) == task.required_turns


# --- knowledge graph --------------------------------------------------------------------------


def _graph(**data: object) -> KnowledgeGraph:
    env = KnowledgeGraph(num_train=8, num_validation=4, num_test=4)
    env.reset(options={"task": Task("x", "knowledge_graph", {"graph": 0, **data})})
    return env


def test_relations_to_many_turn_the_single_ones_round():
    for kind, inverse in INVERSE.items():
        for entity in (name for name, its in GRAPH.types.items() if its == kind):
            for relation, (source, single) in inverse.items():
                back = [e for e in GRAPH.types if GRAPH.edges.get((e, single)) == (entity,)]
                mine = [e for e in back if GRAPH.types[e] == source]
                assert list(GRAPH.neighbors([entity], relation)) == sorted(mine)


def test_every_entity_has_one_of_each_single_relation_and_never_itself():
    for entity, kind in GRAPH.types.items():
        for relation, target in SINGLE[kind].items():
            (there,) = GRAPH.edges[entity, relation]
            assert (GRAPH.types[there], there == entity) == (target, False)


def test_a_question_reads_from_its_end_to_its_start():
    data = {"kind": "path", "paths": [[PERSON, ["boss", "team"]]]}
    assert ask(data) == f"Which is the team of the boss of {PERSON}?"


def test_calls_store_what_they_find_in_variables():
    env = _graph(kind="path", paths=[[PERSON, ["boss"]]])
    text = env.step(f"get_neighbors({PERSON}, boss)")[0]
    assert text == f"#0 = person: {GRAPH.edges[PERSON, 'boss'][0]}"


def test_an_answer_may_be_a_variable_a_name_or_names():
    data = {"kind": "path", "paths": [[PERSON, ["boss"]]]}
    boss = GRAPH.edges[PERSON, "boss"][0]
    assert _graph(**data).step(f"answer({boss.upper()})")[1] == 1.0


def test_pitfall_27_a_wrong_answer_ends_the_episode():
    env = _graph(kind="path", paths=[[PERSON, ["boss"]]])
    assert env.step(f"answer({PERSON})")[1:3] == (0.0, True)


@pytest.mark.parametrize(
    ("call", "part"),
    [
        ("get_neighbor(#0, boss)", "did you mean 'get_neighbors'"),
        (f"get_neighbors({PERSON}, bos)", "did you mean 'boss'"),
        (f"get_neighbors({PERSON})", "Call it like this: get_neighbors(VARIABLE, RELATION)"),
        ("count(#7)", "no entity or variable '#7'"),
        (f"argmax({PERSON}, height)", "there are: year of birth"),
    ],
)
def test_a_wrong_call_is_told_what_is_right(call: str, part: str):
    assert part in _graph(kind="path", paths=[[PERSON, ["boss"]]]).step(call)[0]


@given(st.lists(st.text(max_size=40), max_size=5))
@settings(max_examples=40)
def test_any_text_costs_a_turn_and_never_raises(actions: list[str]):
    env = _graph(kind="path", paths=[[PERSON, ["boss"]]])
    assert all(env.step(f"get_neighbors({text}")[1] == 0.0 for text in actions)


def test_gold_of_two_paths_is_what_both_lead_to():
    env = KnowledgeGraph(kinds=["both"])
    data = env.tasks("test")[9].data
    sets = [set(GRAPH.follow(*path)) for path in data["paths"]]
    assert set(gold(GRAPH, data)) == sets[0] & sets[1]


def test_the_brief_form_says_when_the_path_is_lost_and_takes_a_step_back():
    env = KnowledgeGraph(brief=True, max_hops=3)
    data = {"kind": "path", "paths": [[PERSON, ["boss", "team"]]], "graph": 0}
    env.reset(options={"task": Task("x", "knowledge_graph", data)})
    lost = env.step("follow home")[0]
    found = env.step("back")[0]
    assert (lost.startswith("lost ."), found.startswith("left boss . team .")) == (True, True)


# --- sql --------------------------------------------------------------------------------------


@pytest.fixture
def database():
    """A database whose statements may use several tables."""
    opened = Database(GRAPH, one_table=False)
    yield opened
    opened.close()


def test_a_database_holds_the_world(database):
    _, rows = database.query(f"SELECT boss FROM people WHERE name = '{PERSON}'", 5)
    assert rows == [GRAPH.edges[PERSON, "boss"]]


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM people",
        "DROP TABLE people",
        "PRAGMA writable_schema = 1",
        "ATTACH DATABASE '/tmp/stolen.db' AS other",
        "VACUUM INTO '/tmp/stolen.db'",
        "SELECT load_extension('evil')",
        "SELECT randomblob(1000000000)",
        "SELECT random()",
        "SELECT datetime('now')",
        "SELECT readfile('/etc/passwd')",
        "CREATE TABLE mine (x)",
        "BEGIN",
        "SELECT 1; DELETE FROM people",
        "SELECT \0",
        "SELECT '\ud800'",
        "WITH RECURSIVE c(x) AS (VALUES(1) UNION ALL SELECT x + 1 FROM c) SELECT COUNT(*) FROM c",
        "SELECT COUNT(*) FROM people a, people b, people c, people d",
        "SELECT replace(replace(hex('aaaaaaaaaaaaaaaa'), '6', 'bbbbbbbbbbbbbb'), 'b', 'cccccccc')",
        f"SELECT {'(' * 200}1{')' * 200}",
    ],
)
def test_a_query_does_nothing_but_read_within_bounds(database, statement: str):
    before = database.contents()
    with pytest.raises(Refused):
        database.query(statement, 5)
    assert database.contents() == before


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE people",
        "UPDATE sqlite_master SET sql = ''",
        "ALTER TABLE people ADD COLUMN x",
        "INSERT INTO people SELECT a.* FROM people a, people b",
        "CREATE TRIGGER t AFTER INSERT ON people BEGIN DELETE FROM teams; END",
    ],
)
def test_a_change_that_is_refused_changes_nothing(database, statement: str):
    before = database.contents()
    with pytest.raises(Refused):
        database.change(statement)
    assert database.contents() == before


@given(st.text(max_size=80))
@settings(max_examples=100, deadline=None)
def test_any_statement_is_answered_or_refused(statement: str):
    opened = Database(GRAPH, one_table=True)
    for run in (lambda: opened.query(statement, 3), lambda: opened.change(statement)):
        try:
            run()
        except Refused:
            continue
    opened.close()


@pytest.mark.parametrize(
    "query",
    [
        "SELECT p.name FROM people p JOIN teams t ON p.team = t.name",
        "SELECT name FROM people WHERE team IN (SELECT name FROM teams)",
        "SELECT a.name FROM people a, people b WHERE a.boss = b.name",
    ],
)
def test_one_table_a_statement_refuses_joins_and_subqueries(query: str):
    opened = Database(GRAPH, one_table=True)
    with pytest.raises(Refused, match="one table only"):
        opened.query(query, 5)
    opened.close()


def _sql(**data: object) -> Sql:
    env = Sql(num_train=8, num_validation=4, num_test=4)
    env.reset(options={"task": Task("x", "sql", {"world": 0, **data})})
    return env


def test_a_change_is_done_when_the_database_is_as_it_should_be():
    change = {"start": PERSON, "path": [], "attribute": "year of birth", "value": 1900}
    env = _sql(kind="change", changes=[change])
    statement = f"execute UPDATE people SET year_of_birth = 1900 WHERE name = '{PERSON}'"
    too_much = env.step("execute UPDATE people SET year_of_birth = 1900")
    env.reset(
        options={"task": Task("x", "sql", {"world": 0, "kind": "change", "changes": [change]})}
    )
    assert (too_much[1:3], env.step(statement)[1:3]) == ((0.0, False), (1.0, True))


def test_pitfall_27_a_wrong_answer_to_a_query_ends_the_episode():
    env = _sql(kind="value", start=PERSON, path=[], attribute="year of birth")
    assert env.step("answer 1")[1:3] == (0.0, True)


def test_a_change_leaks_into_no_other_episode():
    env = _sql(kind="value", start=PERSON, path=[], attribute="year of birth")
    env.step("execute DELETE FROM people")
    env.reset(options={"task": env.tasks("train")[0]})
    assert "252" not in env.step("sql SELECT COUNT(*) FROM people")[0]
    assert env.step("sql SELECT COUNT(*) AS n FROM people")[0] == "n\n120"


def test_the_nested_plan_gives_what_the_plan_step_by_step_gives():
    env = Sql(one_table=False, max_hops=5, num_train=24)
    for task in env.tasks("train"):
        env.reset(options={"task": task})
        assert [env.step(action) for action in env.expert_plan()][-1][4]["success"]


def test_an_unknown_kind_names_the_nearest():
    with pytest.raises(UserError, match="did you mean 'count'"):
        Sql(kinds=["counts"])


def test_sqlite_has_the_limits_that_the_guard_sets():
    assert hasattr(sqlite3.Connection, "setlimit")
