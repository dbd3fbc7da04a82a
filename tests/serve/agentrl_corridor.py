"""A task for AgentRL's worker, which runs it in a process of its own: walk to the end."""

import json

from agentrl.worker.task import Task
from agentrl.worker.typings import RewardHistoryItem, SampleStatus, TaskSampleExecutionResult

WALK = {
    "type": "function",
    "function": {
        "name": "walk",
        "description": "Walk some cells.",
        "parameters": {
            "type": "object",
            "properties": {
                "direction": {"type": "string", "enum": ["on", "back"]},
                "cells": {"type": "integer"},
                "note": {"type": "string"},
            },
            "required": ["direction"],
        },
    },
}


class Corridor(Task):
    """Sample `i` has `i + 1` cells. Half of the reward comes half-way."""

    def __init__(self, **options):
        super().__init__(name="corridor", tools=[WALK], full_async=True, **options)

    def get_indices(self):
        return [-1, *range(10)]

    async def start_sample(self, index, session):
        cells = left = index + 1
        session.inject({"role": "system", "content": "Walk to the end."})
        said = {"role": "user", "content": [{"type": "text", "text": f"{left} to go"}]}
        while True:
            answer = (await session.action(said)).messages[-1]
            calls = answer.get("tool_calls") or []
            if not calls:
                words = answer["content"]
                if words == "crash":
                    raise RuntimeError("the floor gave way")
                if words in ("limit", "nonsense"):
                    status = {
                        "limit": SampleStatus.TASK_LIMIT_REACHED,
                        "nonsense": SampleStatus.AGENT_INVALID_ACTION,
                    }[words]
                    return TaskSampleExecutionResult(status=status)
                said = {"role": "user", "content": f"you said {words!r}"}
                continue
            arguments = json.loads(calls[0]["function"]["arguments"])
            step = arguments.get("cells", 1)
            before = left
            left -= step if arguments["direction"] == "on" else -step
            if left <= 0:
                session.inject({"role": "user", "content": "arrived"})
                session.inject(RewardHistoryItem(reward=0.5 if before <= cells / 2 else 1.0))
                return TaskSampleExecutionResult(result={"note": arguments.get("note")})
            text = f"{left} to go; note {arguments.get('note')!r}"
            said = [{"role": "tool", "content": text, "tool_call_id": calls[0]["id"]}]
            if before > cells / 2 >= left:
                said.append(RewardHistoryItem(reward=0.5))
