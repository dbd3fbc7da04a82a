"""The expert plays: trajectories to imitate, with the tokens that the policy would have sampled."""

from collections.abc import Sequence
from itertools import pairwise

from scalinginter.chat.action import TURNS_LEFT, AnswerFormat
from scalinginter.chat.formats import answer_format
from scalinginter.chat.renderer import Renderer
from scalinginter.config.schema import ChatConfig
from scalinginter.engine.base import Constraint
from scalinginter.env.catalog import EnvCatalog
from scalinginter.env.host import Observation
from scalinginter.errors import UserError
from scalinginter.types import Completion, FinishReason, StopReason, Task, Trajectory, Turn


def demonstrate(
    env: EnvCatalog, tasks: Sequence[Task], renderer: Renderer, chat: ChatConfig, max_context: int
) -> list[Trajectory]:
    """Play the expert plan of each task. Plans that do not fit `max_context` tokens are left out.

    Raises `UserError` if the environment has no expert, or actions that the form of answers cannot
    express; `RunFailedError` if it fails.
    """
    if not tasks:
        return []
    form = answer_format(chat.format, env.tools, tasks[0].environment)
    played = [_demonstrate(env, task, renderer, chat, form) for task in tasks]
    return [t for t in played if _num_tokens(t) <= max_context]


def _num_tokens(trajectory: Trajectory) -> int:
    return sum(len(t.context_ids) + len(t.completion.token_ids) for t in trajectory.turns)


def _demonstrate(
    env: EnvCatalog, task: Task, renderer: Renderer, chat: ChatConfig, form: AnswerFormat
) -> Trajectory:
    episode = env.expert(task)
    if episode is None:
        raise UserError(
            f"environment {task.environment!r} has no expert plan for task {task.id!r}; "
            "set sft.num_demonstrations: 0"
        )
    plan, opening = episode.plan, episode.opening
    shown = _shown(opening.first.text, chat, len(plan))
    context = renderer.opening(
        [
            {"role": "system", "content": form.briefing(opening.instructions, opening.rules)},
            {"role": "user", "content": shown},
        ]
    )
    turns: list[Turn] = []
    for number, (before, after) in enumerate(pairwise([opening.first, *episode.observations])):
        action = plan[number]
        text = _written(form, action, task)
        completion = _imitated(renderer, text, _trie(before, renderer, chat))
        turns.append(Turn(tuple(context), completion, text, action, after.text, after.reward))
        context = renderer.extend(_shown(after.text, chat, len(plan) - number - 1), True)
    return Trajectory(
        task=task,
        group_id=f"demonstration/{task.id}",
        index=0,
        seed=0,
        horizon=len(plan),
        turns=tuple(turns),
        stop=StopReason.TERMINATED,
        success=episode.success,
        first_observation=opening.first.text,
    )


def _written(form: AnswerFormat, action: str, task: Task) -> str:
    """The expert's action in the form of answers; it must come out of it again."""
    try:
        text = form.write(action)
    except ValueError as error:
        raise UserError(f"chat.format does not suit {task.environment!r}: {error}") from error
    if form.parse(text).action != action:
        raise UserError(
            f"chat.format does not suit {task.environment!r}: the action {action[:80]!r} is not "
            "read back from an answer of that form; choose tool_call"
        )
    return text


def _shown(observation: str, chat: ChatConfig, left: int) -> str:
    told = TURNS_LEFT.format(observation=observation, left=left)
    return told if chat.show_turns_left else observation


def _trie(before: Observation, renderer: Renderer, chat: ChatConfig) -> Constraint | None:
    wanted = before.admissible if chat.constrain_to_admissible else None
    return renderer.constrain(wanted) if wanted else None


def _imitated(renderer: Renderer, text: str, constraint: Constraint | None) -> Completion:
    """The expert's answer as an engine would have recorded it, at log-prob 0."""
    ids = tuple(renderer.answer(text))
    allowed: list[tuple[int, ...] | None] = [None] * len(ids)
    if constraint is not None:
        state = constraint.start
        for position, token in enumerate(ids):
            allowed[position] = constraint.allowed(state)
            state = constraint.advance(state, token)
    forced = tuple(choice is not None and len(choice) == 1 for choice in allowed)
    zeros = (0.0,) * len(ids)
    return Completion(ids, zeros, forced, tuple(allowed), FinishReason.STOP, policy_version=0)
