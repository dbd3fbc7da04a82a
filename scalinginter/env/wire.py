"""The wire format of environments as services, for servers and clients.

    GET    /health                     {"ok": true, "sessions": 3}                  needs no token
    GET    /info                       what is served: see `scalinginter.serve.service.describe`
    GET    /tasks?split=train&start=0  {"tasks": [task, ...], "total": 512}         a page of them
    GET    /corpus                     {"texts": [...]}
    POST   /sessions                   {"task": "train/d1/000000", "seed": 0, "horizon": 20}
                                       -> {"session": "...", "lease_s": 600, "instructions": "...",
                                           "rules": "...", "text": "...", "admissible": null}
    POST   /sessions/ID/step           {"action": "get 1 log", "admissible": false}
                                       -> {"text", "reward", "terminated", "truncated", "success",
                                           "admissible"}
    GET    /sessions/ID/admissible     {"actions": [...] or null}
    GET    /sessions/ID/plan           {"actions": [...] or null}
    DELETE /sessions/ID                {"closed": true}

What goes wrong is `{"error": "a sentence"}`: 4xx where the request is to blame, 502 (504 for a
missed deadline) where the environment failed. The same calls go over a websocket at `/ws`, one JSON
object a message, many at once: `{"id": 7, "call": "step", "session": "...", "action": "..."}` is
answered by `{"id": 7, "status": 200, ...}`. The sessions that a websocket opened end with it.
"""

from collections.abc import Mapping
from typing import Any

from scalinginter.types import Task, Tool

PROTOCOL = 1  # changes when an older client would misread an answer
TOKEN_VARIABLE = "SCALINGINTER_ENV_TOKEN"
PAGE = 2000  # tasks of one answer
ENVIRONMENT_FAILED = 502
ENVIRONMENT_TIMED_OUT = 504


def task_fields(task: Task) -> dict[str, Any]:
    """Return a task as a JSON object."""
    return {
        "id": task.id,
        "environment": task.environment,
        "data": dict(task.data),
        "required_turns": task.required_turns,
    }


def read_task(fields: Mapping[str, Any]) -> Task:
    """Undo `task_fields`. Raises `KeyError` where a field is missing."""
    return Task(fields["id"], fields["environment"], fields["data"], fields["required_turns"])


def tool_fields(tool: Tool) -> dict[str, Any]:
    """Return a tool as a JSON object."""
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
        "template": tool.template,
    }


def read_tool(fields: Mapping[str, Any]) -> Tool:
    """Undo `tool_fields`. Raises `KeyError` where a field is missing."""
    return Tool(fields["name"], fields["description"], fields["parameters"], fields["template"])
