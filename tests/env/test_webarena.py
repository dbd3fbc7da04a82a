"""webarena: tasks in WebArena's format on our own site, in Chromium, with the real evaluators."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="the extra `web` is not installed")

from environments.web.chromium import launch
from environments.web.site.server import serve
from environments.web.site.site import WebSite
from environments.web.webarena.env import WebArena
from environments.web.webarena.helpers import call
from environments.web.webarena.judge import address_right, answer_right, includes
from scalinginter.errors import UserError

try:
    launch.executable()
except UserError as missing:
    pytest.skip(str(missing), allow_module_level=True)

PRICE = "document.querySelector('tr').outerText"


def _eval(*kinds: str, answers=None, url: str = "", html=()) -> dict:
    return {
        "eval_types": list(kinds),
        "reference_answers": answers,
        "reference_url": url,
        "program_html": list(html),
        "string_note": "it is sold out",
    }


def _html(url: str, locator: str, **contents: object) -> dict:
    return {"url": url, "locator": locator, "required_contents": contents}


CHECKS = [
    _eval("string_match", answers={"exact_match": "Blue"}),
    _eval("string_match", answers={"must_include": ["blue", "red"]}),
    _eval("url_match", url="__SHOPPING__/wiki |OR| __SHOPPING__/code"),
    _eval("program_html", html=[_html("last", "document.title", exact_match="Wiki")]),
    _eval("program_html", html=[_html("__SHOPPING__/shop", "", must_include=["no |OR| Kitchen"])]),
    _eval(
        "url_match",
        "program_html",
        url="__SHOPPING__",
        html=[_html("last", "x.y", exact_match="a")],
    ),
    _eval("string_match", answers={"fuzzy_match": ["a kettle"]}),
    _eval("string_match", answers={"fuzzy_match": "N/A"}),
]


@pytest.fixture(scope="module", name="site_url")
def _site_url():
    site = WebSite(1)
    with serve(site) as origin:
        yield origin
    site.close()
    launch.shutdown()


@pytest.fixture(scope="module", name="tasks")
def _tasks(tmp_path_factory: pytest.TempPathFactory) -> str:
    shared = {"sites": ["shopping"], "start_url": "__SHOPPING__/", "intent": "Do it."}
    listed = [
        {"task_id": i, "intent_template_id": i, "eval": checks, **shared}
        for i, checks in enumerate(CHECKS)
    ]
    path = tmp_path_factory.mktemp("webarena") / "tasks.json"
    path.write_text(json.dumps(listed))
    return str(path)


def _play(env: WebArena, number: int, *actions: str) -> float:
    (task,) = [t for t in env.tasks("test") if t.data["task_id"] == number]
    env.reset(options={"task": task})
    *others, stop = actions
    for action in others:
        env.step(action)
    _, reward, terminated, _, info = env.step(stop)
    assert (terminated, info["success"]) == (True, reward == 1.0)
    return reward


@pytest.mark.parametrize(
    ("number", "actions", "reward"),
    [
        (0, ["stop ['blue']"], 1.0),
        (0, ["stop [blue and red]"], 0.0),
        (1, ["stop [Red or Blue]"], 1.0),
        (1, ["stop [blue]"], 0.0),
        (2, ["goto [/wiki]", "stop []"], 1.0),
        (2, ["stop []"], 0.0),
        (3, ["goto [/wiki]", "stop []"], 1.0),
        (3, ["goto [/shop]", "stop []"], 0.0),
        (4, ["stop []"], 1.0),
        (5, ["stop []"], 0.0),
        (7, ["stop [N/A]"], 1.0),
        (7, ["stop [no idea]"], 0.0),
    ],
)
def test_an_evaluator_judges_the_answer_the_address_and_the_pages(
    tasks: str, site_url: str, number: int, actions: list[str], reward: float
):
    env = WebArena(tasks=tasks, urls={"shopping": site_url}, benchmark=True)
    assert _play(env, number, *actions) == reward
    env.close()


def test_tasks_that_need_a_model_are_left_out_without_one(tasks: str, site_url: str):
    env = WebArena(tasks=tasks, urls={"shopping": site_url}, benchmark=True)
    assert [task.data["task_id"] for task in env.tasks("test")] == [0, 1, 2, 3, 4, 5, 7]


def test_a_model_judges_answers_over_the_openai_api(tasks: str, site_url: str):
    asked: list[str] = []

    class Judge(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append(f"{self.path} {body['messages'][0]['content']}")
            word = "Yes." if "Given answer: kettle" in asked[-1] else "no"
            answer = json.dumps({"choices": [{"message": {"content": word}}]}).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Judge)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    judge = f"http://127.0.0.1:{server.server_port}/v1"
    env = WebArena(tasks=tasks, urls={"shopping": site_url}, benchmark=True, judge_url=judge)
    rewards = [_play(env, 6, "stop [kettle]"), _play(env, 6, "stop [pan]")]
    env.close()
    server.shutdown()
    server.server_close()
    assert (rewards, asked[0].split()[0]) == ([1.0, 0.0], "/v1/chat/completions")


def test_requests_to_other_hosts_are_refused(tasks: str, site_url: str):
    env = WebArena(tasks=tasks, urls={"shopping": site_url}, benchmark=True)
    env.reset()
    assert "This browser reaches" in env.step("goto [http://127.0.0.1:9/]")[0]
    leak = "() => fetch('http://127.0.0.1:9/').then(() => 1, () => 0)"
    aborted: list[str] = []
    env._browser.page.on("requestfailed", lambda request: aborted.append(request.failure))
    assert env._browser.page.evaluate(leak) == 0
    assert aborted == ["net::ERR_FAILED"]  # of our refusal; the port would refuse otherwise
    env.close()


def test_no_template_is_in_two_splits(tasks: str, site_url: str):
    env = WebArena(tasks=tasks, urls={"shopping": site_url})
    numbers = [[t.data["task_id"] for t in env.tasks(s)] for s in ("train", "validation", "test")]
    assert numbers == [[2, 3, 4, 7], [1], [0, 5]]


def test_missing_addresses_are_named_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("WA_SHOPPING", raising=False)
    task = {"task_id": 1, "intent": "", "start_url": "", "sites": ["shopping", "map"]}
    (tmp_path / "t.json").write_text(json.dumps([{**task, "eval": {"eval_types": []}}]))
    monkeypatch.setenv("WA_MAP", "http://map.test")
    with pytest.raises(UserError, match="missing: WA_SHOPPING; set"):
        WebArena(tasks=str(tmp_path / "t.json"))


def test_an_unknown_function_of_a_task_file_is_refused_when_it_is_read(tmp_path: Path):
    task = {"task_id": 1, "intent": "", "start_url": "", "sites": []}
    html = [_html("func:os.system('x')", "", must_include=[])]
    (tmp_path / "t.json").write_text(json.dumps([{**task, "eval": {"program_html": html}}]))
    with pytest.raises(UserError, match="task 1 wants"):
        WebArena(tasks=str(tmp_path / "t.json"))


def test_the_812_tasks_of_the_package_are_understood(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("webarena", reason="the package libwebarena is not installed")
    urls = {site: f"http://{site}.test" for site in ("shopping", "shopping_admin", "reddit")}
    urls |= {site: f"http://{site}.test" for site in ("gitlab", "wikipedia", "map", "homepage")}
    env = WebArena(urls=urls, judge_url="http://judge.test/v1")
    assert sum(len(env.tasks(split)) for split in ("train", "validation", "test")) == 812


# --- the evaluators' rules


@pytest.mark.parametrize(
    ("reference", "got", "right"),
    [
        ("http://a.test/x", "http://a.test/x/", True),
        ("http://a.test/x", "http://a.test/x/y?z=1", True),
        ("http://a.test/x?q=1", "http://a.test/x?q=1&r=2", True),
        ("http://a.test/x?q=1", "http://a.test/x?q=2", False),
        ("http://a.test/x |OR| http://a.test/y", "http://a.test/y", True),
        ("http://a.test/x", "http://b.test/x", False),
    ],
)
def test_an_address_is_right_where_it_holds_a_wanted_one(reference: str, got: str, right: bool):
    assert address_right(reference, got) is right


def test_a_single_character_has_to_stand_alone():
    assert (includes("10 items", "0", as_word=True), includes("0 items", "0", as_word=True)) == (
        False,
        True,
    )


def test_all_kinds_of_reference_have_to_hold():
    answers = {"must_include": ["blue"], "exact_match": "blue"}
    config = {"intent": "", "eval": {"reference_answers": answers}}
    assert answer_right(config, "Blue", None)
    assert not answer_right(config, "blue one", None)


def test_a_forum_address_leads_to_its_post():
    text = "func:reddit_get_post_url('__last_url__')"
    got = call(text, "", None, "http://r.test/f/books/59421/a-title/-/comment/1")
    assert got == "http://r.test/f/books/59421/"
