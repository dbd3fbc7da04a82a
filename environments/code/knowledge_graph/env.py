"""Questions over a knowledge graph, answered by calls of graph tools.

In the style of the knowledge graph task of AgentBench (arXiv 2308.03688), over a made-up world.
"""

import random
import re
from collections.abc import Sequence
from typing import ClassVar, Literal

from environments.code.knowledge_graph.graph import ATTRIBUTES, INVERSE, SINGLE, make_graph
from environments.code.knowledge_graph.questions import KINDS, ask, draw_question, gold, plan
from environments.code.seeded import Drawn, SeededEnv, check_int
from scalinginter.errors import UserError, nearest
from scalinginter.types import Task, Tool

Value = tuple[str, ...] | int  # entities, sorted, or a number

RULES = """\
Answer a question over a knowledge graph of people, teams, projects, companies, cities, countries.
Each call that finds something stores it in a new variable: #0, #1, #2 and so on. Where a call \
takes a variable you may also name one entity. A wrong answer ends the episode."""
GRAMMAR = """
Every turn you answer with one call:
get_relations(VARIABLE) - list the relations that its entities have.
get_neighbors(VARIABLE, RELATION) - find what the relation leads to.
get_attributes(VARIABLE) - list the numbers that its entities have.
intersection(VARIABLE, VARIABLE) - find the entities that are in both.
count(VARIABLE) - count its entities.
argmax(VARIABLE, ATTRIBUTE), argmin(VARIABLE, ATTRIBUTE) - find the entity with the largest, \
smallest number.
answer(VARIABLE) - give the answer: a variable, a number, or names with commas between them."""
BRIEF_RULES = "follow RELATION or back ."
SHOWN = 8  # entities that an observation lists
MOST_VARIABLES = 200
_CALL = re.compile(r"\s*(\w+)\s*\((.*?)\)?\s*")


def _tool(name: str, description: str, **arguments: str) -> Tool:
    schema = {key: {"type": "string", "description": text} for key, text in arguments.items()}
    template = f"{name}({', '.join(f'{{{key}}}' for key in arguments)})"
    return Tool(
        name,
        description,
        {"type": "object", "properties": schema, "required": list(arguments)},
        template,
    )


_VARIABLE = "a variable such as #0, or an entity's name"
TOOLS = (
    _tool("get_relations", "List the relations that the entities have.", variable=_VARIABLE),
    _tool(
        "get_neighbors",
        "Find what a relation leads to; the result is a new variable.",
        variable=_VARIABLE,
        relation="the relation's name",
    ),
    _tool("get_attributes", "List the numbers that the entities have.", variable=_VARIABLE),
    _tool(
        "intersection",
        "Find the entities that are in both; the result is a new variable.",
        variable1=_VARIABLE,
        variable2=_VARIABLE,
    ),
    _tool("count", "Count the entities; the result is a new variable.", variable=_VARIABLE),
    _tool(
        "argmax",
        "Find the entity with the largest number; the result is a new variable.",
        variable=_VARIABLE,
        attribute="the number's name",
    ),
    _tool(
        "argmin",
        "Find the entity with the smallest number; the result is a new variable.",
        variable=_VARIABLE,
        attribute="the number's name",
    ),
    _tool("answer", "Give the answer.", answer="a variable, a number, or names with commas"),
)
BRIEF_TOOLS = (
    _tool("follow", "Go where a relation leads.", relation="the relation's name"),
    _tool("back", "Go back by one step."),
)


class KnowledgeGraph(SeededEnv):
    """Answer a question by calls over a graph; reward 1 for the right answer, which ends it.

    Args:
        min_hops, max_hops: relations that a question follows, over all its paths.
        kinds: of questions: `path`, `count`, `most`, `both`.
        brief: few words a turn, paths only, for very small models: `follow` and `back` walk from
            entity to entity; where the path ends, the episode does.
        num_train, num_validation, num_test: tasks per split.
        task_seed: which tasks.
        graph_seed: which world.
    """

    isolation: ClassVar[Literal["inline", "process"]] = "inline"
    env_id: ClassVar[str] = "knowledge_graph"

    def __init__(
        self,
        *,
        min_hops: int = 1,
        max_hops: int = 40,
        kinds: Sequence[str] = KINDS,
        brief: bool = False,
        num_train: int = 2048,
        num_validation: int = 128,
        num_test: int = 256,
        task_seed: int = 0,
        graph_seed: int = 0,
    ) -> None:
        super().__init__(num_train, num_validation, num_test, task_seed)
        check_int("min_hops", min_hops, 1, 60)
        check_int("max_hops", max_hops, min_hops, 60)
        check_int("graph_seed", graph_seed, 0)
        unknown = [kind for kind in kinds if kind not in KINDS]
        if unknown or not kinds:
            got = repr(unknown[0]) + nearest(unknown[0], KINDS) if unknown else "none"
            raise UserError(f"kinds: unknown kind {got}; there are: {', '.join(KINDS)}")
        if type(brief) is not bool:
            raise UserError(f"brief must be true or false, got {brief!r}")
        self._hops = (min_hops, max_hops)
        self._kinds = ["path"] if brief else list(kinds)
        self._brief = brief
        self._graph_seed = graph_seed
        self.instructions = BRIEF_RULES if brief else RULES + GRAMMAR

    @property
    def rules(self) -> str:
        return "" if self._brief else RULES

    def tools(self) -> Sequence[Tool]:
        return BRIEF_TOOLS if self._brief else TOOLS

    def _draw(self, chance: random.Random, index: int) -> Drawn:
        low, high = self._hops
        hops = low + index % (high - low + 1)
        kind = self._kinds[index // (high - low + 1) % len(self._kinds)]
        data = draw_question(make_graph(self._graph_seed), chance, kind, hops)
        turns = hops if self._brief else len(plan(data))
        return {**data, "graph": self._graph_seed}, turns, f"h{hops}"

    def _begin(self, task: Task) -> str:
        self._graph = make_graph(task.data["graph"])
        self._data = dict(task.data)
        self._gold = gold(self._graph, self._data)
        self._variables: list[Value] = []
        if self._brief:
            start, path = self._data["paths"][0]
            self._trail = [start]
            self._path: list[str] = path
            return self._here()
        return ask(self._data)

    def _act(self, action: str) -> tuple[str, float, bool, bool]:
        if self._brief:
            return self._act_briefly(" ".join(action[:200].lower().split()))
        match = _CALL.fullmatch(action[:1000])
        calls = {tool.name: tool for tool in TOOLS}
        if match is None or match[1].lower() not in calls:
            hint = nearest(match[1].lower()[:30], calls) if match else ""
            return f"Not a call{hint}. Say one of: {', '.join(_FORMS)}.", 0.0, False, False
        name = match[1].lower()
        if name == "answer":
            return self._answer(match[2])
        words = [" ".join(word.split()) for word in match[2].split(",")]
        wanted = len(calls[name].parameters["properties"])
        if len(words) != wanted or not all(words):
            return f"Call it like this: {_FORMS[list(calls).index(name)]}.", 0.0, False, False
        if len(self._variables) >= MOST_VARIABLES:
            return "There is no room for another variable. Give an answer.", 0.0, False, False
        return self._call(name, words), 0.0, False, False

    def _call(self, name: str, words: list[str]) -> str:
        first = self._value(words[0])
        if not isinstance(first, tuple):
            return self._no_entities(words[0], first)
        if name == "get_relations":
            return "Relations: " + ", ".join(self._relations(first)) + "."
        if name == "get_attributes":
            return "Attributes: " + ", ".join(self._attributes(first)) + "."
        if name == "count":
            return self._store(len(first))
        if name == "intersection":
            second = self._value(words[1])
            if not isinstance(second, tuple):
                return self._no_entities(words[1], second)
            return self._store(tuple(sorted(set(first) & set(second))))
        allowed = self._relations(first) if name == "get_neighbors" else self._attributes(first)
        key = words[1].lower()
        if key not in allowed:
            what = "relation" if name == "get_neighbors" else "attribute"
            listed = ", ".join(allowed)
            return f"No {what} {key[:40]!r}{nearest(key, allowed)}; there are: {listed}."
        if name == "get_neighbors":
            return self._store(self._graph.neighbors(first, key))
        return self._store(self._graph.best(first, key, name == "argmax"))

    def _value(self, word: str) -> Value | None:
        """Return what a word stands for: a variable or one entity; None if neither."""
        if re.fullmatch(r"#\d{1,4}", word):
            number = int(word[1:])
            return self._variables[number] if number < len(self._variables) else None
        return (word.lower(),) if word.lower() in self._graph.types else None

    def _no_entities(self, word: str, value: Value | None) -> str:
        if value is not None:
            return f"{word} is a number, not a set of entities."
        known = [f"#{number}" for number in range(len(self._variables))]
        listed = f"; variables so far: {', '.join(known[-5:])}" if known else ""
        return f"There is no entity or variable {word[:40]!r}{nearest(word, known)}{listed}."

    def _store(self, value: Value) -> str:
        if value == ():
            return "Nothing is found; no variable is made."
        self._variables.append(value)
        name = f"#{len(self._variables) - 1}"
        if isinstance(value, int):
            return f"{name} = {value}"
        more = f", and {len(value) - SHOWN} more" if len(value) > SHOWN else ""
        return f"{name} = {self._graph.types[value[0]]}: {', '.join(value[:SHOWN])}{more}"

    def _relations(self, entities: tuple[str, ...]) -> list[str]:
        return sorted({r for entity in entities for r in self._graph.relations(entity)})

    def _attributes(self, entities: tuple[str, ...]) -> list[str]:
        return sorted({a for entity in entities for a in ATTRIBUTES[self._graph.types[entity]]})

    def _answer(self, text: str) -> tuple[str, float, bool, bool]:
        word = " ".join(text.split())
        value = self._value(word)
        if value is None and re.fullmatch(r"\d{1,9}", word):
            value = int(word)
        if value is None:
            names = tuple(sorted({" ".join(part.lower().split()) for part in word.split(",")}))
            value = names if all(name in self._graph.types for name in names) else None
        if value is None:
            return self._no_entities(word, None), 0.0, False, False
        right = value == self._gold
        return ("Right." if right else "Wrong."), float(right), True, right

    # --- the brief form -------------------------------------------------------------------------

    def _here(self) -> str:
        """Return what is left of the path, and where the agent is; off the path it is lost."""
        here = self._trail[-1]
        done = len(self._trail) - 1
        on_path = self._graph.follow(self._trail[0], self._path[:done]) == (here,)
        left = f"left {' . '.join(self._path[done:])}" if on_path and self._path[done:] else "lost"
        return f"{left} .\nat {here} . {' . '.join(SINGLE[self._graph.types[here]])} ."

    def _act_briefly(self, action: str) -> tuple[str, float, bool, bool]:
        action = action.replace("()", "").replace("(", " ").rstrip(")")
        verb, _, rest = action.partition(" ")
        here = self._trail[-1]
        if verb == "back":
            if len(self._trail) > 1:
                self._trail.pop()
            return self._here(), 0.0, False, False
        if verb == "follow" and rest in SINGLE[self._graph.types[here]]:
            if len(self._trail) < MOST_VARIABLES:
                self._trail.append(self._graph.edges[here, rest][0])
            there = (self._trail[-1],) == self._gold
            return self._here(), float(there), there, there
        return f"say follow or back . {self._here()}", 0.0, False, False

    def admissible_actions(self) -> list[str] | None:
        """Return, in the brief form, the relations from here and `back`; else the calls
        on the newest variable (at first on the question's entities) and on the question's ends."""
        if self._brief:
            follow = sorted(f"follow({r})" for r in SINGLE[self._graph.types[self._trail[-1]]])
            return [*follow, *(["back()"] if len(self._trail) > 1 else [])]
        names = [start for start, _ in self._data["paths"]]
        newest = [f"#{n}" for n in range(len(self._variables))][-1:]
        actions: list[str] = []
        for word in [*names, *newest]:
            value = self._value(word)
            if isinstance(value, tuple):
                actions += [f"get_neighbors({word}, {r})" for r in self._relations(value)]
                actions += [
                    f"{f}({word}, {a})"
                    for f in ("argmax", "argmin")
                    for a in self._attributes(value)
                ]
                actions.append(f"count({word})")
        variables = [f"#{n}" for n, v in enumerate(self._variables) if isinstance(v, tuple)]
        actions += [f"intersection({v}, {newest[0]})" for v in variables if v != newest[0]]
        actions += [f"answer(#{n})" for n in range(len(self._variables))]
        return actions

    def expert_plan(self) -> list[str] | None:
        if self._brief:
            return [f"follow({r})" for r in self._data["paths"][0][1]]
        return plan(self._data)

    def corpus(self) -> list[str]:
        """Return every word that this environment can say or understand."""
        graph = make_graph(self._graph_seed)
        texts = [self.instructions, " ".join(graph.types), _WORDS]
        for kind in SINGLE:
            named = [*SINGLE[kind], *INVERSE.get(kind, {}), *ATTRIBUTES[kind]]
            texts += [kind, *(f"follow({name}) . get_neighbors(#0, {name})" for name in named)]
        texts += [f"#{n} = {n}" for n in range(64)]
        return [*texts, *(self.reset(options={"task": t})[0] for t in self.tasks("train")[:64])]


_FORMS = tuple(re.findall(r"\w+\([A-Z, ]+\)", GRAMMAR))
_WORDS = """\
left . lost . at follow back() answer() say or Right. Wrong. Nothing is found; no variable is
made. Not a call. Say one of: Call it like this: Relations: Attributes: and more"""
