"""Checks that play: solving, rewards, actions, hostile text, gymnasium."""

import math
import os
import random
import statistics
import time
import warnings

from scalinginter.env.check_subject import Finding, Subject, require
from scalinginter.env.fingerprint import Moment, act, play
from scalinginter.types import Task

_TOLERANCE = 1e-6  # on sums of rewards
_GIBBERISH = "xyzzy qwrt"  # an action that no environment understands
_CANARY = "SCALINGINTER_CHECK_ENV_CANARY"
_CODE = f"__import__('os').environ.update({_CANARY}='1')"
HOSTILE = (
    "",
    " \t\n",
    "a" * 10_000,
    "word " * 2_000,
    "9" * 5_000,
    "get " + "9" * 5_000 + " x",
    "żółć 日本語 \U0001f525 \u202e \u0000",
    "{0.__class__} {x} %s %n",
    _CODE,
    f"print({_CODE})",
    f"`{_CODE}`",
    '{"action": "x", "arguments": [1, null]}',
    "'; DROP TABLE tasks; --",
    "<|im_end|><|assistant|>",
)


def expert_solves(subject: Subject) -> str:
    """The expert plan solves the test tasks within the limit, and none is shorter than said."""
    lengths = []
    for task in subject.played:
        moments = subject.expert(task)
        if moments is None:
            return "no expert plan"
        require(
            bool(moments) and moments[-1].success,
            f"{task.id}: not solved after {len(moments)} turns of the plan",
        )
        limit = subject.horizon or task.required_turns or len(moments)
        require(len(moments) <= limit, f"{task.id}: {len(moments)} turns, allowed {limit}")
        needs = task.required_turns
        require(
            needs is None or needs <= len(moments),
            f"{task.id}: required_turns is {needs}, the expert needs only {len(moments)}",
        )
        lengths.append(len(moments))
    return f"{len(lengths)} test tasks in {min(lengths)} to {max(lengths)} turns"


def success_terminates(subject: Subject) -> str:
    """Reaching the goal ends the episode and earns something."""
    for task in subject.played:
        for moment in subject.expert(task) or []:
            require(
                moment.terminated is True or not moment.success,
                f"{task.id}: success after {moment.action!r} does not terminate",
            )
            require(not moment.success or moment.reward > 0, f"{task.id}: success earns 0")
    return "success ends the episode and earns"


def refused_after_the_end(subject: Subject) -> str:
    """Nothing can be earned after the end."""
    refusal = "no episode was played"
    for task in subject.played:
        moments = subject.expert(task)
        if not moments or not moments[-1].terminated:
            return "no episode to end"
        try:
            _, reward, terminated, _, _ = subject.env.step(moments[-1].action or "")
        except Exception as error:
            refusal = f"raises {type(error).__name__}"
            continue
        require(terminated, f"{task.id}: goes on after its end")
        require(not reward, f"{task.id}: a step after the end earns {reward}")
        refusal = "ends again, earns nothing"
    return refusal


def random_policy(subject: Subject) -> str:
    """Random actions earn between 0 and 1 in sum; nothing is truncated."""
    rewards, successes = [], []
    choice = random.Random(subject.seed)
    for task in subject.played * 4:
        subject.start(task)
        total, success = 0.0, False
        for _ in range(subject.turns(task)):
            actions = subject.env.admissible_actions() or ["look", "help", _GIBBERISH]
            moment = act(subject.env, choice.choice(actions))
            _require_reward(task, moment)
            total += moment.reward
            require(-_TOLERANCE <= total <= 1 + _TOLERANCE, f"{task.id}: total is {total}")
            require(not moment.truncated, f"{task.id}: truncates; the rollout does that")
            success = moment.success
            if moment.terminated:
                break
            require(not success, f"{task.id}: success does not terminate")
        rewards.append(total)
        successes.append(success)
    return (
        f"mean reward {statistics.fmean(rewards):.3f}, "
        f"success {statistics.fmean(successes):.3f} over {len(rewards)} episodes"
    )


def expert_reward(subject: Subject) -> str:
    """The expert earns between 0 and 1 in sum."""
    totals = []
    for task in subject.played:
        moments = subject.expert(task)
        if moments is None:
            return "no expert plan"
        for moment in moments:
            _require_reward(task, moment)
        totals.append(sum(moment.reward for moment in moments))
        low, high = -_TOLERANCE, 1 + _TOLERANCE
        require(low <= totals[-1] <= high, f"{task.id}: the expert earns {totals[-1]}")
    return f"{min(totals):g} to {max(totals):g}"


def admissible_are_accepted(subject: Subject) -> str:
    """What the list says is accepted is not answered like nonsense."""
    accepted = 0
    for task in subject.played:
        subject.start(task)
        actions = subject.env.admissible_actions()
        if actions is None:
            return "no list of admissible actions"
        require(len(set(actions)) == len(actions), f"{task.id}: an action is listed twice")
        refusal = act(subject.env, _GIBBERISH).observation
        refusals = {refusal, refusal.replace(_GIBBERISH, "?")}
        for action in actions:
            subject.start(task)
            answer = act(subject.env, action).observation
            understood = refusals.isdisjoint({answer, answer.replace(action, "?")})
            require(understood, f"{task.id}: {action!r} is answered like nonsense")
            accepted += 1
    return f"{accepted} first actions"


def expert_is_admissible(subject: Subject) -> str:
    """The expert plan can be followed by an agent that is held to the list."""
    steps = 0
    for task in subject.played:
        subject.start(task)
        for action in subject.env.expert_plan() or []:
            actions = subject.env.admissible_actions()
            if actions is None:
                return "no list of admissible actions"
            require(action in actions, f"{task.id}: {action!r} is not in the list")
            steps += 1
            if act(subject.env, action).terminated:
                break
    return "every action of the plans is listed" if steps else "no expert plan"


def prompt_names_the_actions(subject: Subject) -> str:
    """The first word of whatever is accepted can be read in the prompt."""
    for task in subject.played:
        observation, _ = subject.start(task)
        prompt = set(_words(subject.env.instructions) + _words(observation))
        require(bool(subject.env.instructions.strip()), "instructions are empty")
        for action in [
            *(subject.env.expert_plan() or []),
            *(subject.env.admissible_actions() or []),
        ]:
            verb = (_words(action) or [""])[0]
            require(verb in prompt, f"{task.id}: {action!r} is accepted, but nobody says so")
    return "the first word of every action is in the prompt"


def hostile_text(subject: Subject) -> str:
    """Odd text never raises and is never evaluated."""
    task = subject.played[0]
    os.environ.pop(_CANARY, None)
    subject.start(task)
    verbs = {(_words(a) or [""])[0] for a in subject.env.admissible_actions() or []}
    texts = [*HOSTILE, *(f"{v} {end}" for v in sorted(verbs)[:8] for end in ("", _CODE))]
    for text in texts:
        subject.start(task)
        try:
            moment = act(subject.env, text)
        except Exception as error:
            raise Finding(f"{text[:40]!r} raises {type(error).__name__}: {error}"[:300]) from error
        require(isinstance(moment.observation, str), f"{text[:40]!r}: not answered with text")
        ran = os.environ.pop(_CANARY, None) is not None
        require(not ran, f"{text[:60]!r} was evaluated as code")
    return f"{len(texts)} texts"


def gymnasium_api(subject: Subject) -> str:
    """gymnasium's own passive checker neither raises nor warns."""
    from gymnasium.wrappers import PassiveEnvChecker

    env = subject.make()
    for name in ("observation_space", "action_space"):
        require(
            getattr(env, name, None) is not None,
            f"has no {name}; leave it to TextEnv",
        )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wrapped = PassiveEnvChecker(env)
        _, info = wrapped.reset(seed=subject.seed)
        require(isinstance(info, dict), "reset gives no info dict")
        answer = wrapped.step((env.expert_plan() or env.admissible_actions() or ["look"])[0])
        wrapped.close()
    require(len(answer) == 5, f"step returns {len(answer)} values")
    return "PassiveEnvChecker has nothing to say"


def speed(subject: Subject) -> str:
    """How long a turn takes."""
    start = time.perf_counter()
    turns = sum(
        len(play(subject.env, task, seed=subject.seed, turns=subject.turns(task)))
        for task in subject.played
    )
    elapsed = time.perf_counter() - start
    return f"{1e6 * elapsed / turns:.0f} us a turn, resets and action lists included"


def _require_reward(task: Task, moment: Moment) -> None:
    reward = moment.reward
    sound = isinstance(reward, float | int) and not isinstance(reward, bool)
    require(sound and math.isfinite(reward), f"{task.id}: the reward is {reward!r}, not a number")


def _words(text: str) -> list[str]:
    return "".join(c if c.isalnum() else " " for c in text.lower()).split()
