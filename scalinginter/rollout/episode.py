"""One episode: the agent and the environment take turns until something ends it."""

import asyncio
from dataclasses import dataclass, replace

from scalinginter.chat.action import TURNS_LEFT
from scalinginter.chat.formats import answer_format
from scalinginter.chat.renderer import Renderer
from scalinginter.config.schema import ChatConfig, RolloutConfig
from scalinginter.engine.base import Constraint, GenerateRequest, Generator
from scalinginter.env.pool import EnvPool, EnvSession, Observation, Opening
from scalinginter.errors import EngineFailure, EnvironmentFailure
from scalinginter.seeds import derive
from scalinginter.types import Completion, FinishReason, StopReason, Task, Trajectory, Turn

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
        engine: Generator,
        renderer: Renderer,
        chat: ChatConfig,
        limits: RolloutConfig,
    ) -> None:
        """Raises `UserError` if the form of answers does not suit the environment."""
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
        except EngineFailure as failure:
            stop, error = StopReason.ENGINE_ERROR, str(failure)
        except TimeoutError:
            stop = StopReason.TIMEOUT
            error = f"the episode took longer than {self.limits.episode_timeout_s:g} s"
        finally:
            self._playing.discard(play)
            self.engine.release(play.session_id)
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
            next_ids=tuple(play.upcoming) if stop.is_truncation else (),
            next_forked=play.next_forked,
        )

    def messages(self, opening: Opening, turns_left: int) -> list[dict[str, str]]:
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
        self.upcoming: list[int] = []  # what the next turn appends, if it fits the context
        self.next_forked = False

    async def until_stopped(self) -> StopReason:
        runner, spec, limits = self.runner, self.spec, self.runner.limits
        self.session = await runner.pool.open(spec.task, seed=spec.env_seed, horizon=spec.horizon)
        observation = self.session.first
        messages = runner.messages(self.session.opening, spec.horizon)
        appended = runner.renderer.opening(messages)
        context: list[int] = []
        forked = False
        for turn in range(spec.horizon):
            context += appended
            room = self._room(len(context))
            if isinstance(room, StopReason):
                return room
            completion = await runner.engine.generate(
                self._request(turn, context, room, observation)
            )
            runner.forwarded_tokens += completion.forwarded_tokens
            observation, record = await self._act(completion, appended, forked, observation)
            stop = self._take(record, observation)
            if stop is not None and not stop.is_truncation:
                return stop
            context += completion.token_ids
            shown = runner.with_turns_left(observation.text, spec.horizon - turn - 1)
            messages += [
                {"role": "assistant", "content": record.text},
                {"role": "user", "content": shown},
            ]
            ended = completion.finish is FinishReason.STOP
            forked = runner.renderer.must_fork(messages)
            if forked:
                context, appended = [], runner.renderer.fork(messages)
            else:
                appended = runner.renderer.extend(shown, ended)
            fits = len(context) + len(appended) <= self._max_context
            self.upcoming, self.next_forked = appended if fits else [], forked
            if stop is not None or turn + 1 == spec.horizon:
                return StopReason.HORIZON
            if (
                limits.max_tokens_per_episode
                and self.num_generated >= limits.max_tokens_per_episode
            ):
                return StopReason.TOKENS
        raise AssertionError("a horizon is at least one turn")

    @property
    def _max_context(self) -> int:
        return min(self.runner.limits.max_context, self.runner.engine.max_context)

    def _room(self, num_context: int) -> int | StopReason:
        """Return how many tokens this turn may have; what is checked is the prompt that is sent."""
        limits = self.runner.limits
        room = limits.max_tokens_per_turn
        if num_context + room > self._max_context:
            return StopReason.CONTEXT
        if limits.max_tokens_per_episode is not None:
            room = min(room, limits.max_tokens_per_episode - self.num_generated)
        return room

    def _request(
        self, turn: int, context: list[int], room: int, observation: Observation
    ) -> GenerateRequest:
        return GenerateRequest(
            session=self.session_id,
            prompt_ids=list(context),
            max_new_tokens=room,
            seed=derive(self.spec.seed, turn),
            temperature=self.spec.temperature,
            stop_ids=self.runner.renderer.stop_ids,
            constraint=self.runner.constraint(observation),
        )

    async def _act(
        self, completion: Completion, appended: list[int], forked: bool, before: Observation
    ) -> tuple[Observation, Turn]:
        """Send the action; an answer without one gets help and costs the turn all the same."""
        assert self.session is not None
        text = self.runner.renderer.decode(completion.token_ids)
        answer = self.runner.format.parse(text)
        if answer.action is None:
            after = replace(before, text=answer.note, reward=0.0, terminated=False, truncated=False)
        else:
            after = await self.session.step(answer.action)
            if answer.note:
                after = replace(after, text=f"{after.text}\n{answer.note}")
        action = answer.action
        self.num_parse_failures = self.num_parse_failures + 1 if action is None else 0
        self.num_generated += len(completion.token_ids)
        record = Turn(
            context_ids=tuple(appended),
            completion=completion,
            text=text,
            action=action,
            observation=after.text,
            reward=after.reward,
            forked=forked,
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
