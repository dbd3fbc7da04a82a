"""AgentGym's wire format, as its clients speak it, and our client of it."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from environments.remote.score import Score
from scalinginter.env.agentgym import FLAVOURS
from scalinginter.env.registry import make
from scalinginter.errors import EnvironmentFailure, UserError

NUMBER_OF_TASKS = 512 + 128 + 128


def test_a_server_says_which_numbers_are_which_split(agentgym_server):
    status, said = agentgym_server.request("GET", "/")
    wanted = "This is environment textcraft. Tasks: 0 to 511 train, 512 to 639 validation, "
    assert (status, said) == (200, wanted + "640 to 767 test.")


def test_an_episode_has_the_fields_that_agentgyms_clients_read(agentgym_server):
    ask = agentgym_server.request
    number = ask("POST", "/create", {"commands": None, "goal": None})[1]["id"]
    _, opened = ask("POST", "/reset", {"id": number, "data_idx": 3})
    task = make("textcraft").tasks("train")[3]
    local = make("textcraft")
    text, _ = local.reset(options={"task": task})
    plan = local.expert_plan()
    answers = [ask("POST", "/step", {"id": number, "action": action})[1] for action in plan]
    last = ask("GET", f"/observation?id={number}")[1]
    assert (opened["observation"], opened["done"], opened["reward"]) == (text, False, 0.0)
    assert [a["done"] for a in answers] == [False] * (len(plan) - 1) + [True]
    assert (answers[-1]["reward"], answers[-1]["score"]) == (1.0, 1.0)
    assert last == answers[-1]["observation"]
    assert ask("POST", "/close", {"id": number})[0] == 200


@pytest.mark.parametrize(
    ("path", "body", "sentence"),
    [
        ("/step", {"id": 99_999, "action": "look"}, "no environment 99999"),
        ("/reset", {"id": "x", "data_idx": 0}, "id must be a whole number, got 'x'"),
        ("/reset", {"id": None, "data_idx": 0}, "id must be a whole number, got nothing"),
        ("/reset", {"data_idx": NUMBER_OF_TASKS}, "data_idx must be from 0 to 767"),
        ("/reset", {"data_idx": -1}, "data_idx must be from 0 to 767"),
        ("/step", {"action": None}, "action must be a string"),
        ("/close", {"id": 99_999}, "no environment 99999"),
    ],
)
def test_errors_come_with_status_200_as_agentgyms_do(agentgym_server, path, body, sentence):
    number = agentgym_server.request("POST", "/create")[1]["id"]
    body = {"id": number} | body
    status, answer = agentgym_server.request("POST", path, body)
    assert (status, sentence in answer["error"]) == (200, True), answer


def test_malformed_json_is_a_bad_request(agentgym_server):
    status, answer = agentgym_server.request("POST", "/step", b"{")
    assert (status, "not JSON" in answer["error"]) == (400, True)


def test_a_step_after_the_end_asks_for_a_reset(shared_server):
    server = shared_server("toy_corridor", "--format", "agentgym", "--flavour", "textcraft")
    number = server.request("POST", "/create")[1]["id"]
    server.request("POST", "/step", {"id": number, "action": "right"})
    status, answer = server.request("POST", "/step", {"id": number, "action": "right"})
    assert (status, "POST /reset first" in answer["error"]) == (200, True)


def test_a_number_outlives_the_lease_of_its_episode(start_server):
    arguments = ["--format", "agentgym", "--lease-s", "0.3"]
    server = start_server("toy_corridor", *arguments)
    number = server.request("POST", "/create")[1]["id"]
    end = time.monotonic() + 90
    while server.request("GET", "/health")[1]["sessions"] and time.monotonic() < end:
        time.sleep(0.1)
    late = server.request("POST", "/step", {"id": number, "action": "left"})[1]
    again = server.request("POST", "/reset", {"id": number, "data_idx": 0})[1]
    assert "its lease of 0.3 s ran out" in late["error"]
    assert again["observation"] == "red iron corridor . 1 to go"


@pytest.mark.parametrize("flavour", sorted(FLAVOURS))
def test_client_and_server_of_each_flavour_understand_each_other(shared_server, flavour):
    arguments = ["--format", "agentgym", "--flavour", flavour]
    server = shared_server("toy_corridor", *arguments)
    client = make("agentgym", url=server.url, flavour=flavour, test=[0, 32])
    texts = []
    for task in client.tasks("test")[1:3]:  # two cells, three cells
        texts.append(client.reset(options={"task": task})[0])
        answers = [client.step("right") for _ in range(task.data["index"] + 1)]
        assert [answer[1] for answer in answers] == [0.0] * task.data["index"] + [1.0]
        assert answers[-1][2:] == (True, False, {"success": True})
    client.close()
    assert [text.splitlines()[-1] for text in texts] == [
        "red brass corridor . 2 to go",
        "red lead corridor . 3 to go",
    ]


def test_admissible_actions_arrive_where_the_flavour_has_them(shared_server):
    server = shared_server("toy_corridor", "--format", "agentgym", "--flavour", "alfworld")
    client = make("agentgym", url=server.url, flavour="alfworld", train=[0, 4])
    client.reset()
    assert client.admissible_actions() == ["left", "right"]
    client.close()


def test_pitfall_13_an_error_with_status_200_is_a_failure_and_the_next_episode_starts_anew(
    shared_server,
):
    server = shared_server("toy_corridor", "--format", "agentgym", "--flavour", "textcraft")
    client = make("agentgym", url=server.url, flavour="textcraft", train=[0, 10_000])
    with pytest.raises(EnvironmentFailure, match="data_idx must be from 0 to"):
        client.reset(options={"task": client.tasks("train")[9_999]})
    text, _ = client.reset(options={"task": client.tasks("train")[1]})
    client.close()
    assert text == "red brass corridor . 2 to go"


def test_the_wrong_flavour_is_a_failure_that_asks_about_it(shared_server):
    server = shared_server("toy_corridor", "--format", "agentgym", "--flavour", "searchqa")
    client = make("agentgym", url=server.url, flavour="webarena", train=[0, 4])
    with pytest.raises(EnvironmentFailure, match=r"right flavour|must be a whole number"):
        client.reset()
    client.close()


def test_a_url_with_a_password_opens_a_guarded_server(start_server):
    server = start_server("toy_corridor", "--format", "agentgym", "--token", "s3cret")
    url = server.url.replace("//", "//any:s3cret@")
    client = make("agentgym", url=url, flavour="textcraft", train=[0, 4])
    assert client.reset()[0].endswith("to go")
    client.close()


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"flavour": "textcaft"}, "did you mean 'textcraft'"),
        ({"train": [5, 5]}, "train must be"),
        ({"train": [0, 1.5]}, "train must be"),
        ({"train": [0, 9], "test": [8, 12]}, "test and train share tasks"),
        ({"scale": 0}, "scale must be above 0"),
        ({"success_threshold": 2}, "success_threshold must be in"),
        ({"url": []}, "url must be an address"),
        ({"url": "127.0.0.1:80"}, "url must look like http://host:port"),
        ({"step_timeout_s": 0}, "step_timeout_s must be above 0"),
    ],
)
def test_wrong_parameters_are_refused(params, sentence):
    given_params = {"url": "http://127.0.0.1:9", "flavour": "textcraft"} | params
    with pytest.raises(UserError, match=sentence):
        make("agentgym", **given_params)


def test_a_split_without_numbers_says_how_to_give_them():
    env = make("agentgym", url="http://127.0.0.1:9", flavour="textcraft")
    with pytest.raises(UserError, match=r"train: \[0, 400\]"):
        env.tasks("train")


def test_a_missing_parameter_is_named():
    with pytest.raises(UserError, match="needs the parameter 'url'"):
        make("agentgym")


def test_pitfall_26_a_score_of_0_to_100_becomes_rewards_that_sum_to_the_level_reached():
    score = Score(100.0, cumulative=True, start=3.0)
    rewards = [score.take(value) for value in (3.0, 53.0, 28.0, 100.0)]
    assert rewards == pytest.approx([0.0, 0.5, -0.25, 0.72])


def test_pitfall_26_a_score_below_zero_takes_back_what_was_earned_and_no_more():
    score = Score(100.0, cumulative=True)
    assert [score.take(50.0), score.take(-100.0)] == [0.5, -0.5]


@given(st.lists(st.floats(-200, 200)), st.booleans(), st.sampled_from([1.0, 100.0]))
def test_pitfall_26_whatever_a_server_reports_the_sum_stays_between_0_and_1(
    values, cumulative, scale
):
    score, total = Score(scale, cumulative), 0.0
    for value in values:
        total += score.take(value)
        assert -1e-9 <= total <= 1 + 1e-9


@pytest.mark.parametrize("value", [None, "1", True, float("nan")])
def test_pitfall_13_a_score_that_is_no_number_is_a_failure(value):
    with pytest.raises(EnvironmentFailure, match="not a number"):
        Score(1.0, cumulative=False).take(value)
