"""One episode: the agent and the environment take turns until something ends it."""

import asyncio
from dataclasses import dataclass, replace

from scalinginter.chat.action import TURNS_LEFT
from scalinginter.chat.formats import answer_format
from scalinginter.chat.renderer import Renderer
from scalinginter.config.schema import ChatConfig, RolloutConfig
from scalinginter.engine.base import ChatEngine, Constraint, Generator
from scalinginter.env.pool import EnvPool, EnvSession, Observation, Opening
from scalinginter.errors import ContextFull, EngineFailure, EnvironmentFailure
from scalinginter.rollout.dialogue import (
    ChatDialogue,
    Dialogue,
    Message,
    Prompt,
    Said,
    TokenDialogue,
)
from scalinginter.seeds import derive
from scalinginter.types import StopReason, Task, Trajectory, Turn

MAX_RESTARTS = 32  # of an episode that others took down


@dataclass(frozen=True, slots=True)
class EpisodeSpec:
    """Which episode to play."""

    task: Task
    group_id: str
    index: int  # within the group
    seed: int  # of sampling
    env_seed: int  # of the environment; one for the whole group
    horizon: int  # turns
    temperature: float
    family: str = ""  # the environment's name in the recipe


class EpisodeRunner:
    """Plays episodes. Limits are separate and each has a stop reason of its own."""

    def __init__(
        self,
        pool: EnvPool,
        engine: Generator | ChatEngine,
        renderer: Renderer | None,
        chat: ChatConfig,
        limits: RolloutConfig,
    ) -> None:
        """`renderer`: None for a `ChatEngine`, which takes messages.

        Raises `UserError` if the form of answers does not suit the environment.
        """
        self.pool, self.engine, self.renderer = pool, engine, renderer
        self.chat, self.limits = chat, limits
        self.format = answer_format(chat.format, pool.tools, pool.env_id)
        self.forwarded_tokens = 0  # through the model, of all episodes so far
        self._playing: set[_Play] = set()

    @property
    def turns_in_play(self) -> list[int]:
        """Turns so far of every episode that is being played."""
        return [len(play.turns) for play in self._playing]

    async def run(self, spec: EpisodeSpec) -> Trajectory:
        """Play one episode. Never raises for a failure of environment or engine: it is data.

        An episode that lost its worker to another one's fault starts again: otherwise one bad task
        would drop its neighbours from the batch.
        """
        for _ in range(MAX_RESTARTS):
            trajectory = await self._attempt(spec, restartable=True)
            if trajectory is not None:
                return trajectory
        trajectory = await self._attempt(spec, restartable=False)
        assert trajectory is not None
        return trajectory

    async def _attempt(self, spec: EpisodeSpec, restartable: bool) -> Trajectory | None:
        play = _Play(self, spec)
        self._playing.add(play)
        stop, error = StopReason.ENV_ERROR, ""
        try:
            async with asyncio.timeout(self.limits.episode_timeout_s):
                stop = await play.until_stopped()
        except EnvironmentFailure as failure:
            if failure.collateral and restartable:
                return None
            stop = StopReason.TIMEOUT if failure.timeout else StopReason.ENV_ERROR
            error = str(failure)
        except ContextFull:
            stop = StopReason.CONTEXT
        except EngineFailure as failure:
            stop, error = StopReason.ENGINE_ERROR, str(failure)
        except TimeoutError:
            stop = StopReason.TIMEOUT
            error = f"the episode took longer than {self.limits.episode_timeout_s:g} s"
        finally:
            self._playing.discard(play)
            if play.dialogue is not None:
                play.dialogue.close()
            if play.session is not None:
                await play.session.close()
        return Trajectory(
            task=spec.task,
            group_id=spec.group_id,
            index=spec.index,
            seed=spec.seed,
            horizon=spec.horizon,
            turns=tuple(play.turns),
            stop=stop,
            success=play.success,
            first_observation=play.session.first.text if play.session else "",
            error=error,
            family=spec.family,
            next_ids=play.dialogue.next_ids if play.dialogue and stop.is_truncation else (),
            next_forked=play.dialogue is not None and play.dialogue.next_forked,
        )

    def dialogue(self, messages: list[Message], session: str) -> Dialogue:
        """Begin an episode's conversation with the engine."""
        if isinstance(self.engine, ChatEngine):
            return ChatDialogue(self.engine, messages)
        assert self.renderer is not None
        limit = min(self.limits.max_context, self.engine.max_context)
        return TokenDialogue(
            self.engine, self.renderer, messages, session=session, max_context=limit
        )

    def messages(self, opening: Opening, turns_left: int) -> list[Message]:
        """Return the messages that open an episode."""
        told = self.format.briefing(opening.instructions, opening.rules)
        return [
            {"role": "system", "content": told},
            {"role": "user", "content": self.with_turns_left(opening.first.text, turns_left)},
        ]

    def with_turns_left(self, observation: str, left: int) -> str:
        """Return the observation as the model sees it."""
        if not self.chat.show_turns_left:
            return observation
        return TURNS_LEFT.format(observation=observation, left=left)

    def constraint(self, observation: Observation) -> Constraint | None:
        """Return the constraint to the admissible actions, where the recipe asks for it."""
        if not self.chat.constrain_to_admissible or not observation.admissible:
            return None
        assert self.renderer is not None  # the recipe refuses constraints for a `ChatEngine`
        return self.renderer.constrain(observation.admissible)


class _Play:
    """The state of one episode while it runs."""

    def __init__(self, runner: EpisodeRunner, spec: EpisodeSpec) -> None:
        self.runner, self.spec = runner, spec
        self.session_id = f"{spec.group_id}#{spec.index}"
        self.session: EnvSession | None = None
        self.turns: list[Turn] = []
        self.success = False
        self.num_generated = 0
        self.num_parse_failures = 0  # in a row
        self.dialogue: Dialogue | None = None  # once the environment is there

    async def until_stopped(self) -> StopReason:
        runner, spec, limits = self.runner, self.spec, self.runner.limits
        self.session = await runner.pool.open(spec.task, seed=spec.env_seed, horizon=spec.horizon)
        observation = self.session.first
        messages = runner.messages(self.session.opening, spec.horizon)
        self.dialogue = dialogue = runner.dialogue(messages, self.session_id)
        for turn in range(spec.horizon):
            if not dialogue.fits(limits.max_tokens_per_turn):
                return StopReason.CONTEXT
            said = await dialogue.ask(self._prompt(turn, observation))
            runner.forwarded_tokens += said.completion.forwarded_tokens
            observation, record = await self._act(said, observation)
            stop = self._take(record, observation)
            if stop is not None and not stop.is_truncation:
                return stop
            left = spec.horizon - turn - 1
            dialogue.go_on(said, runner.with_turns_left(observation.text, left))
            if stop is not None or not left:
                return StopReason.HORIZON
            if (
                limits.max_tokens_per_episode
                and self.num_generated >= limits.max_tokens_per_episode
            ):
                return StopReason.TOKENS
        raise AssertionError("a horizon is at least one turn")

    def _prompt(self, turn: int, observation: Observation) -> Prompt:
        limits = self.runner.limits
        room = limits.max_tokens_per_turn
        if limits.max_tokens_per_episode is not None:
            room = min(room, limits.max_tokens_per_episode - self.num_generated)
        return Prompt(
            max_new_tokens=room,
            seed=derive(self.spec.seed, turn),
            temperature=self.spec.temperature,
            constraint=self.runner.constraint(observation),
        )

    async def _act(self, said: Said, before: Observation) -> tuple[Observation, Turn]:
        """Send the action; an answer without one gets help and costs the turn all the same."""
        assert self.session is not None
        answer = self.runner.format.parse(said.text)
        if answer.action is None:
            after = replace(before, text=answer.note, reward=0.0, terminated=False, truncated=False)
        else:
            after = await self.session.step(answer.action)
            if answer.note:
                after = replace(after, text=f"{after.text}\n{answer.note}")
        action = answer.action
        self.num_parse_failures = self.num_parse_failures + 1 if action is None else 0
        self.num_generated += said.completion.num_tokens
        record = Turn(
            context_ids=said.context_ids,
            completion=said.completion,
            text=said.text,
            action=action,
            observation=after.text,
            reward=after.reward,
            forked=said.forked,
        )
        return after, record

    def _take(self, turn: Turn, observation: Observation) -> StopReason | None:
        self.turns.append(turn)
        self.success = observation.success
        if observation.terminated:
            return StopReason.TERMINATED
        if observation.truncated:
            return StopReason.HORIZON  # a limit of the environment's own
        limit = self.runner.limits.max_parse_failures
        if limit is not None and self.num_parse_failures >= limit:
            return StopReason.PARSE
        return None
