"""Episodes written by hand, for the tests of estimators."""

import pytest

from scalinginter.types import Completion, FinishReason, Group, StopReason, Task, Trajectory, Turn


def make_turn(reward, observation, *, tokens=2, forced=0, trained=True, forked=False):
    completion = Completion(
        token_ids=tuple(range(3, 3 + tokens)),
        logprobs=(-1.0,) * tokens,
        forced=(True,) * forced + (False,) * (tokens - forced),
        allowed=(None,) * tokens,
        finish=FinishReason.STOP,
        policy_version=0,
        trained=trained,
    )
    return Turn((1, 2), completion, "go", "go", observation, reward, forked)


@pytest.fixture(scope="session")
def group():
    """Return a function that makes a group: the rewards of each episode's turns.

    `seen`: per episode what its turns answered; the first is the opening of the episode.
    """

    def make(*rewards, seen=None, stops=None, family="toy", forked=False, **turn):
        episodes = []
        for index, per_turn in enumerate(rewards):
            states = seen[index] if seen else [f"{index}.{k}" for k in range(len(per_turn))]
            after = [*states[1:], "the end"][: len(per_turn)]
            episodes.append(
                Trajectory(
                    task=Task("t", "toy"),
                    group_id="g",
                    index=index,
                    seed=0,
                    horizon=9,
                    turns=tuple(
                        make_turn(reward, seen_next, forked=forked and k > 0, **turn)
                        for k, (reward, seen_next) in enumerate(zip(per_turn, after, strict=True))
                    ),
                    stop=stops[index] if stops else StopReason.TERMINATED,
                    success=sum(per_turn) > 0,
                    first_observation=states[0] if states else "",
                    family=family,
                )
            )
        return Group("g", tuple(episodes))

    return make
