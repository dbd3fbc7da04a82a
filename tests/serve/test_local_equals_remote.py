"""An environment behind a server is the environment: same tasks, same bytes, same training run."""

import random

import pytest
import yaml

from scalinginter.env.check import check_env
from scalinginter.env.registry import make

NUM_TASKS = 6
TURNS = 12


def _play(env, task, policy):
    """Play an episode; return everything that was seen."""
    choice = random.Random(task.id)
    text, _ = env.reset(seed=3, options={"task": task, "horizon": TURNS})
    plan = env.expert_plan() if policy == "expert" else None
    seen = [(text, env.instructions)]
    for turn in range(TURNS if plan is None else len(plan)):
        offered = [*env.admissible_actions(), "open the door", "get \ud800 \N{SNOWMAN}\nlog", ""]
        action = choice.choice(offered) if plan is None else plan[turn]
        text, reward, terminated, truncated, info = env.step(action)
        seen.append((action, text, reward, terminated, truncated, info["success"]))
        if terminated:
            break
    return seen


def _episodes(env, policy):
    tasks = [task for split in ("train", "test") for task in env.tasks(split)[:NUM_TASKS]]
    seen = [_play(env, task, policy) for task in tasks]
    env.close()
    return seen


@pytest.mark.parametrize("policy", ["random", "expert"])
@pytest.mark.parametrize("transport", ["url", "websocket_url"])
def test_a_remote_episode_is_the_local_one_to_the_byte(textcraft_server, transport, policy):
    remote = make("remote", url=getattr(textcraft_server, transport))
    assert _episodes(remote, policy) == _episodes(make("textcraft"), policy)


def _played_blindly(env, task, actions):
    text, _ = env.reset(options={"task": task})
    seen = [text]
    for action in actions:
        text, reward, terminated, truncated, info = env.step(action)
        seen.append((text, reward, terminated, truncated, info["success"]))
        if terminated:
            break
    return seen


@pytest.mark.parametrize("policy", ["random", "expert"])
def test_an_episode_in_agentgyms_format_is_the_local_one_to_the_byte(agentgym_server, policy):
    local = make("textcraft")
    gym = make("agentgym", url=agentgym_server.url, flavour="textcraft", train=[0, 512])
    for ours, theirs in list(zip(local.tasks("train"), gym.tasks("train"), strict=True))[:12]:
        actions = [step[0] for step in _play(local, ours, policy)[1:]]
        assert _played_blindly(gym, theirs, actions) == _played_blindly(local, ours, actions)
    gym.close()


def test_the_client_knows_the_tasks_the_tools_and_the_texts_of_the_server(textcraft_server):
    remote, local = make("remote", url=textcraft_server.url), make("textcraft")
    for split in ("train", "validation", "test"):
        assert list(remote.tasks(split)) == list(local.tasks(split))
    assert (remote.tools(), remote.rules) == (local.tools(), local.rules)
    assert remote.corpus() == local.corpus()
    remote.close()


def test_the_remote_environment_keeps_the_contract(textcraft_server):
    report = check_env("remote", {"url": textcraft_server.websocket_url}, num_tasks=2)
    assert report.ok, str(report)


@pytest.mark.parametrize("transport", ["url", "websocket_url"])
def test_messages_of_every_size_arrive_unchanged(shared_server, transport):
    server = shared_server("faulty_environments:InlineCounter")
    client = make("remote", url=getattr(server, transport))
    client.reset(options={"task": client.tasks("train")[0], "horizon": 9})
    texts = [
        "",
        "x",
        *("y" * size for size in (100, 127, 65_400, 65_600, 900_000)),
        "\ud800\N{SNOWMAN}",
    ]
    echoes = [client.step(f"echo {text}")[0] for text in texts]
    client.close()
    assert echoes == texts


def test_two_servers_share_the_episodes(start_server):
    servers = [start_server("toy_corridor") for _ in range(2)]
    urls = [server.url for server in servers]
    clients = [make("remote", url=urls) for _ in range(4)]
    for client in clients:
        client.reset()
    sessions = [server.request("GET", "/health")[1]["sessions"] for server in servers]
    for client in clients:
        client.close()
    assert sessions == [2, 2]


def _recipe(folder, name, environment):
    recipe = {
        "name": name,
        "environment": environment,
        "horizon": {"kind": "staged", "stages": [3, 6], "every": 1},
        "model": {"path": "tiny:nano"},
        "chat": {"constrain_to_admissible": True},
        "rollout": {
            "num_tasks": 4,
            "group_size": 4,
            "max_tokens_per_turn": 12,
            "max_context": 512,
        },
        "train": {"num_steps": 2, "learning_rate": 0.003},
        "sft": {"num_demonstrations": 8, "num_epochs": 1},
        "eval": {"horizon": 6, "every": 2, "num_tasks": 4},
        "track": {"mlflow": False},
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(recipe))
    return path


@pytest.mark.slow
def test_training_through_a_server_writes_the_journal_of_the_local_run(
    start_server, tmp_path, command, numbers
):
    params = {"brief": True, "max_depth": 2, "num_train": 32}
    given = [f"{key}={str(value).lower()}" for key, value in params.items()]
    server = start_server("textcraft", "--param", *given)
    environments = {
        "local": {"id": "textcraft", "params": params},
        "http": {"id": "remote", "params": {"url": server.url}},
    }
    journals = {}
    for name, environment in environments.items():
        recipe = _recipe(tmp_path, name, environment)
        done = command("train.py", "--schedule", recipe, "--output", tmp_path / name / "run")
        assert done.returncode == 0, done.stderr
        journals[name] = numbers(tmp_path / name / "run")
    assert journals["http"] == journals["local"]
