"""AgentGym's wire format: one JSON API over HTTP, and what each of its servers calls things.

    GET  /                               a greeting
    POST /create                         {"id": 0}, 0, or with a first episode
    POST /reset   {"id", "data_idx"}     {"observation", "reward", "done"}, or the text alone
    POST /step    {"id", "action"}       {"observation", "reward", "done"[, "score"]}
    GET  /observation?id=0               the last observation
    POST /close   {"id"}

Errors come with status 200, as `{"error": "..."}`. Source: the public repository of AgentGym
(arXiv 2406.04151), its servers `agentenv-*` and clients `agentenv/envs`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from scalinginter.errors import UserError, nearest


@dataclass(frozen=True, slots=True)
class Flavour:
    """What one of the servers calls things."""

    session: str = "id"
    index: str = "data_idx"  # the number of the task, in /reset
    reset_fields: Mapping[str, Any] = field(default_factory=dict)  # sent along with it
    create_fields: Mapping[str, Any] = field(default_factory=dict)
    observation: str = "observation"
    done: str = "done"
    score: str = "reward"  # what counts: the reward of a step, or ...
    cumulative: bool = False  # ... what was reached so far
    scale: float = 1.0  # the best score
    task: str | None = None  # a field of /reset that goes before the first observation
    actions: str | None = None  # a field with the actions that are accepted now
    created: Literal["object", "number", "episode"] = "object"  # what /create answers
    reset: Literal["object", "text", "pair"] = "object"  # what /reset answers
    how: str = ""  # the actions, for the agent


FLAVOURS: dict[str, Flavour] = {
    "alfworld": Flavour(
        index="game",
        reset_fields={"world_type": "Text"},
        actions="available_actions",
        how="Act in a household. Every turn you answer with one action of those that are listed, "
        "such as go to desk 1, take mug 1 from desk 1, open drawer 2, look, inventory.",
    ),
    "babyai": Flavour(
        score="score",
        cumulative=True,
        how="Reach the goal in a grid of rooms. Every turn you answer with one action: turn left, "
        "turn right, move forward, go to OBJECT ID, pick up OBJECT ID, go through DOOR ID, "
        "toggle and go through DOOR ID, toggle.",
    ),
    "sciworld": Flavour(
        score="score",
        cumulative=True,
        scale=100.0,
        task="task_description",
        how="Solve a task in a science laboratory. Every turn you answer with one action, such as "
        "look around, look at OBJ, open OBJ, pick up OBJ, move OBJ to OBJ, pour OBJ into OBJ, "
        "use OBJ on OBJ, activate OBJ, focus on OBJ, go to LOC, mix OBJ, wait, inventory, task.",
    ),
    "searchqa": Flavour(
        session="env_idx",
        index="id",
        create_fields={"id": 0},
        created="number",
        reset="text",
        how="Answer a question. Every turn you either search, <search>query</search>, or give the "
        "answer, <answer>text</answer>.",
    ),
    "textcraft": Flavour(
        created="episode",
        how="Craft the goal item. Every turn you answer with one action: get N ITEM, "
        "craft N ITEM using N ITEM, N ITEM (a crafting command that you are given), or inventory.",
    ),
    "webarena": Flavour(
        session="env_idx",
        index="idx",
        reset_fields={"seed": 0},
        done="terminated",
        how="Reach an objective in a web browser. Every turn you answer with one action: "
        "click [id], type [id] [text] [0|1], hover [id], press [keys], scroll [up|down], new_tab, "
        "tab_focus [index], close_tab, goto [url], go_back, go_forward, stop [answer].",
    ),
    "webshop": Flavour(
        session="env_idx",
        index="session_id",
        observation="state",
        created="number",
        reset="pair",
        how="Buy what is asked for. Every turn you answer with one action: search[words] or "
        "click[button].",
    ),
}


def flavour_named(name: str) -> Flavour:
    """Return a flavour. Raises `UserError` for an unknown name."""
    if name not in FLAVOURS:
        raise UserError(
            f"unknown flavour {name!r} of AgentGym's format{nearest(name, FLAVOURS)}; "
            f"there are: {', '.join(FLAVOURS)}"
        )
    return FLAVOURS[name]
