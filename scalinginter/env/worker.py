"""The inside of a worker process: answers calls from a socket, one line of JSON each, in order.

    trainer -> worker   {"reference": ..., "params": ..., "want_admissible": ...}    the greeting
    worker -> trainer   {"ok": null}
    trainer -> worker   ["open", session, task, seed, horizon] | ["step", session, action]
                        | ["ask", session, "admissible_actions" | "expert_plan"]
                        | ["tasks", split] | ["corpus"] | ["expert", task]
    worker -> trainer   {"ok": ...}, {"error": "what happened"} or {"user_error": "what to mend"}
    trainer -> worker   ["close", session]                                           no answer

It imports the environment and nothing of the trainer: no torch. The end of the stream ends it.
"""

import ctypes
import faulthandler
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

from scalinginter.env.host import EnvHost, ExpertEpisode, Observation, Opening
from scalinginter.errors import EnvironmentFailure, UserError
from scalinginter.types import Task

PR_SET_PDEATHSIG = 1  # Linux, prctl(2)


def pack(observation: Observation) -> list[Any]:
    """Return the fields of an observation in their order, as JSON values."""
    o = observation
    return [o.text, o.reward, o.terminated, o.truncated, o.success, o.admissible]


def unpack(fields: list[Any]) -> Observation:
    """Undo `pack`."""
    text, reward, terminated, truncated, success, actions = fields
    admissible = None if actions is None else tuple(actions)
    return Observation(text, reward, terminated, truncated, success, admissible)


def pack_opening(opening: Opening) -> list[Any]:
    """Return the fields of an opening in their order, as JSON values."""
    return [opening.instructions, opening.rules, pack(opening.first)]


def unpack_opening(fields: list[Any]) -> Opening:
    """Undo `pack_opening`."""
    instructions, rules, first = fields
    return Opening(instructions, rules, unpack(first))


def pack_task(task: Task) -> list[Any]:
    """Return the fields of a task in their order; `Task(*fields)` undoes it."""
    return [task.id, task.environment, dict(task.data), task.required_turns]


def pack_expert(episode: ExpertEpisode | None) -> list[Any] | None:
    """Return the fields of an expert's episode in their order, as JSON values."""
    if episode is None:
        return None
    return [pack_opening(episode.opening), episode.plan, [pack(o) for o in episode.observations]]


def unpack_expert(fields: list[Any] | None) -> ExpertEpisode | None:
    """Undo `pack_expert`."""
    if fields is None:
        return None
    opening, plan, observations = fields
    played = tuple(unpack(o) for o in observations)
    return ExpertEpisode(unpack_opening(opening), tuple(plan), played)


def main(descriptor: int, parent: int) -> None:
    """Serve the socket `descriptor` until its end or the death of process `parent`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the trainer's to decide on
    faulthandler.enable()  # a native crash leaves its stack in the log that failures quote
    _die_with(parent)
    # Not closed here: the trainer takes the end of the stream for the end of this process.
    stream = socket.socket(fileno=descriptor).makefile("rwb")
    host = EnvHost(**json.loads(stream.readline()))
    _send(stream, {"ok": None})
    calls: dict[str, Callable[..., Any]] = {
        "open": lambda session, task, *how: pack_opening(host.open(session, Task(*task), *how)),
        "step": lambda *arguments: pack(host.step(*arguments)),
        "ask": host.ask,
        "tasks": lambda split: [pack_task(task) for task in host.tasks(split)],
        "corpus": host.corpus,
        "expert": lambda task: pack_expert(host.expert(Task(*task))),
    }
    for line in stream:
        name, *arguments = json.loads(line)
        if name == "close":
            host.close(*arguments)
            continue
        try:
            answer = {"ok": calls[name](*arguments)}
        except EnvironmentFailure as failure:
            answer = {"error": str(failure)}
        except UserError as error:
            answer = {"user_error": str(error)}
        _send(stream, answer)
    host.shutdown()


def _send(stream: Any, answer: dict[str, Any]) -> None:
    stream.write(json.dumps(answer).encode() + b"\n")
    stream.flush()


def _die_with(parent: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above took effect
        os._exit(1)
