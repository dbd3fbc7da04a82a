"""Groups that are played beside the learner: none is lost, none comes twice, none holds a step."""

import asyncio

import pytest

from scalinginter.env.catalog import EnvCatalog
from scalinginter.horizon import Horizon
from scalinginter.rollout.collect import Assignment, Collector, CollectPlan
from scalinginter.rollout.pacing import Pace
from scalinginter.rollout.stream import GroupStream, Ticket

DEADLINE_S = 60.0


@pytest.fixture
def tasks():
    return EnvCatalog("toy_corridor", {}, want_admissible=False).tasks("train")


class Deal:
    """Deals the tasks in their order; implements `Deal`."""

    def __init__(self, tasks):
        self.tasks, self.next = tasks, 0

    def draw(self, under_way):
        self.next += 1
        return Ticket(self.next - 1, "", self.next - 1)

    def task(self, ticket):
        return self.tasks[ticket.position % len(self.tasks)]

    def state_dict(self):
        return {"next": self.next}

    def load_state_dict(self, state):
        self.next = state["next"]


class Gate:
    """Holds the episodes of some groups until it is opened."""

    def __init__(self, engine, *names):
        self.held, self.open, self._generate = names, asyncio.Event(), engine.generate
        engine.generate = self.generate

    async def generate(self, request):
        if request.session.startswith(tuple(f"{name}#" for name in self.held)):
            await self.open.wait()
        return await self._generate(request)


@pytest.fixture
def make_stream(make_runner, tasks):
    """Return a function that makes a stream of corridors; steps of 2 groups of 2 episodes."""

    def make(staleness=1, step=2, limit=None, version=None, script=("right",), **options):
        runner = make_runner(list(script), **options)
        collector = Collector({"": runner}, max_concurrent=64, max_retries=0)
        pace = Pace(step, staleness, limit)
        engine = runner.engine
        given = version or (lambda: engine.version)
        key = ("train", 0)
        options = {"group_size": 2, "temperature": 1.0, "key": key}
        return GroupStream(collector, Deal(tasks), pace, given, **options), engine

    return make


AT_5 = {"": Horizon(5)}


async def step(stream, engine, horizons=AT_5, work=lambda: None):
    """Take a step as the loop does; return its groups."""
    async with asyncio.timeout(DEADLINE_S):
        collection = await stream.take(horizons)
        await stream.beside(work)
        stream.trained()
        await engine.sync(engine.version + 1)
    return collection.groups


def run(stream, engine, steps=1, **options):
    async def all_steps():
        taken = [await step(stream, engine, **options) for _ in range(steps)]
        await stream.aclose()
        return taken

    return asyncio.run(all_steps())


def episodes(groups):
    return [(t.task.id, t.seed, t.group_id, t.index) for g in groups for t in g.trajectories]


def ids(steps):
    return [group.id for groups in steps for group in groups]


def test_a_stream_without_staleness_collects_what_the_collector_does(make_stream, tasks):
    stream, engine = make_stream(staleness=0)
    streamed = run(stream, engine, steps=2)
    collector, plans = stream._collector, []
    for number in range(2):
        assignments = [Assignment(task, 5, "") for task in tasks[2 * number : 2 * number + 2]]
        plans.append(CollectPlan(assignments, 2, 1.0, ("train", 0, number)))
    collected = [asyncio.run(collector.collect(plan)).groups for plan in plans]
    assert list(map(episodes, streamed)) == list(map(episodes, collected))


def test_a_stream_without_staleness_plays_nothing_during_the_update(make_stream):
    stream, engine = make_stream(staleness=0)
    asked = []

    def work():
        asked.append(len(engine.requests))

    run(stream, engine, work=work)
    assert len(engine.requests) == asked[0]


def test_groups_are_played_while_the_learner_updates(make_stream):
    stream, engine = make_stream(staleness=1)

    async def one_step():
        loop, gate = asyncio.get_running_loop(), Gate(engine, "train/0/1/0")

        async def play_on():
            gate.open.set()
            async with asyncio.timeout(DEADLINE_S):
                while len(stream._ready) < 2:
                    await asyncio.sleep(0.001)
            return len(stream._ready)

        def work():  # in a thread: it ends only once other groups were played
            return asyncio.run_coroutine_threadsafe(play_on(), loop).result(2 * DEADLINE_S)

        await stream.take(AT_5)
        ready = await stream.beside(work)
        await stream.aclose()
        return ready

    assert asyncio.run(one_step()) == 2


def test_a_long_episode_does_not_hold_the_step(make_stream):
    stream, engine = make_stream(staleness=2)

    async def two_steps():
        Gate(engine, "train/0/0/1")
        taken = [await step(stream, engine) for _ in range(2)]
        await stream.aclose()
        return taken

    assert "train/0/0/1" not in ids(asyncio.run(two_steps()))


def test_a_long_episode_is_waited_for_before_it_would_be_too_old(make_stream):
    stream, engine = make_stream(staleness=1)

    async def two_steps():
        gate = Gate(engine, "train/0/0/1")
        first = await step(stream, engine)
        second = asyncio.create_task(step(stream, engine))
        while len(stream._ready) < 2:  # enough for a step, but for the one that is due
            await asyncio.sleep(0.001)
        waits = not second.done()
        gate.open.set()
        taken = [first, await second]
        await stream.aclose()
        return waits, taken

    waits, taken = asyncio.run(two_steps())
    assert waits
    assert "train/0/0/1" in ids(taken[1:])


def test_a_new_horizon_is_for_new_episodes_only(make_stream):
    stream, engine = make_stream(staleness=1)

    async def steps():
        first = await step(stream, engine, {"": Horizon(1)})  # begins groups of the second, too
        others = [await step(stream, engine, {"": Horizon(4)}) for _ in range(2)]
        await stream.aclose()
        return [first, *others]

    taken = asyncio.run(steps())
    horizons = [{t.horizon for group in groups for t in group.trajectories} for groups in taken]
    assert horizons == [{1}, {1}, {4}]


def test_pitfall_36_what_was_under_way_is_played_again_after_a_resume(make_stream):
    stream, engine = make_stream(staleness=2)
    resumed, other = make_stream(staleness=2)

    async def killed():
        Gate(engine, "train/0/0/0", "train/0/1/0")
        first = await step(stream, engine)
        await stream.take(AT_5)  # and the run is killed before these are trained
        state = stream.state_dict()
        await stream.aclose()
        return [first], state

    before, state = asyncio.run(killed())
    resumed.load_state_dict(state)
    after = run(resumed, other, steps=4)
    seen = ids(before + after)
    assert len(set(seen)) == len(seen) == 10
    assert {f"train/0/{block}/{i}" for block in range(3) for i in range(2)} <= set(seen)


def test_pitfall_36_a_group_that_is_played_again_is_the_same_group(make_stream):
    (stopped, _), (again, engine), (whole, other) = (make_stream() for _ in range(3))

    async def interrupted():
        taking = asyncio.create_task(stopped.take({"": Horizon(3)}))
        await asyncio.sleep(0)
        taking.cancel()
        await asyncio.gather(taking, return_exceptions=True)
        state = stopped.state_dict()
        await stopped.aclose()
        return state

    again.load_state_dict(asyncio.run(interrupted()))
    (first,), (expected,) = run(again, engine), run(whole, other)
    assert episodes(first) == episodes(expected)
    assert {t.horizon for group in first for t in group.trajectories} == {3}


def test_pitfall_35_what_playing_a_group_raises_reaches_the_learner(make_stream):
    stream, engine = make_stream()

    async def broken(request):
        raise KeyError("a fault of ours")

    engine.generate = broken
    with pytest.raises(KeyError, match="a fault of ours"):
        run(stream, engine)


def test_a_restart_plays_everything_that_is_under_way_again(make_stream):
    stream, engine = make_stream(staleness=1)

    async def rolled_back():
        first = await step(stream, engine)
        while len(stream._ready) < 2:
            await asyncio.sleep(0.001)
        asked = len(engine.requests)
        await stream.restart()
        second = await step(stream, engine)
        await stream.aclose()
        return ids([first, second]), len(engine.requests) - asked

    seen, asked = asyncio.run(rolled_back())
    assert len(set(seen)) == 4
    assert asked > 2


def test_overprovision_keeps_no_more_groups_under_way_than_it_says(make_stream):
    stream, engine = make_stream(staleness=3, limit=3)
    run(stream, engine, steps=3)
    assert stream.metrics()["async/under_way"] == 1.0


def test_pitfall_38_the_length_of_what_is_left_behind_is_logged(make_stream):
    stream, engine = make_stream(staleness=2, script=["right", "left", "left", "left"])
    run(stream, engine, steps=1)
    assert "async/turns_in_play_mean" in stream.metrics()


def test_lags_are_those_of_the_tokens(make_stream):
    stream, engine = make_stream(staleness=1)
    run(stream, engine, steps=2)
    metrics = stream.metrics()
    assert (metrics["async/lag_mean"], metrics["async/lag_1"]) == (1.0, 1.0)
