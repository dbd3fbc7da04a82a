"""Task lists, corpus and expert: from a worker where the environment may hang or crash."""

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scalinginter.env.catalog import EnvCatalog
from scalinginter.errors import RunFailedError, UserError
from scalinginter.types import Task

QUESTIONS: dict[str, Callable[[EnvCatalog], Any]] = {
    "tasks": lambda catalog: catalog.tasks("train"),
    "corpus": lambda catalog: catalog.corpus(),
    "expert_plan": lambda catalog: catalog.expert(Task("t", "counter", {"start": 1})),
}
NAMES = ["BrokenCatalog", "InlineCatalog"]


@pytest.fixture
def open_catalog(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., EnvCatalog]]:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    opened: list[EnvCatalog] = []

    def make(name: str = "BrokenCatalog", timeout_s: float = 60.0, **params: str) -> EnvCatalog:
        opened.append(
            EnvCatalog(
                f"faulty_environments:{name}",
                params,
                reset_timeout_s=timeout_s,
                want_admissible=True,
            )
        )
        return opened[-1]

    yield make
    for catalog in opened:
        asyncio.run(catalog.aclose())


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_worker_gives_what_the_process_itself_would(open_catalog, question):
    apart, inline = (QUESTIONS[question](open_catalog(name)) for name in NAMES)
    assert apart == inline


def test_the_experts_episode_ends_with_success_and_keeps_the_whole_plan(open_catalog):
    episode = QUESTIONS["expert_plan"](open_catalog())
    texts = [observation.text for observation in episode.observations]
    assert texts == ["count 2", "won"]
    assert len(episode.plan) == 3


def test_what_the_expert_could_have_done_is_recorded_until_the_end(open_catalog):
    episode = QUESTIONS["expert_plan"](open_catalog())
    assert episode.opening.first.admissible == ("count", "win")
    assert [o.admissible for o in episode.observations] == [("count", "win"), None]


@pytest.mark.parametrize("question", QUESTIONS)
def test_pitfall_29_a_hang_meets_a_deadline(open_catalog, question):
    # A task list and a corpus may take as long as ten resets.
    timeout_s = 1.0 if question == "expert_plan" else 0.1
    catalog = open_catalog(timeout_s=timeout_s, call=question, fault="hang")
    with pytest.raises(RunFailedError, match=r"no answer within 1 s .*\n.*reset_timeout_s"):
        QUESTIONS[question](catalog)


@pytest.mark.parametrize("question", QUESTIONS)
def test_pitfall_29_a_crash_is_one_sentence_and_not_the_end_of_the_trainer(open_catalog, question):
    catalog = open_catalog(call=question, fault="crash")
    with pytest.raises(RunFailedError, match=r"worker process died .*status 41"):
        QUESTIONS[question](catalog)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("question", QUESTIONS)
def test_an_exception_is_told_with_its_place(open_catalog, question, name):
    catalog = open_catalog(name, call=question, fault="raise")
    with pytest.raises(RunFailedError, match=r"no such game file \(faulty_environments.py:\d+\)"):
        QUESTIONS[question](catalog)


@pytest.mark.parametrize("name", NAMES)
def test_what_the_user_can_mend_stays_a_user_error(open_catalog, name):
    with pytest.raises(UserError, match=r"^install scalinginter\[science\]$"):
        open_catalog(name, call="tasks", fault="user").tasks("train")


def test_a_split_without_tasks_is_refused(open_catalog):
    with pytest.raises(UserError, match="has no tasks in the split 'test'"):
        open_catalog().tasks("test")


def test_a_task_list_is_asked_for_once(open_catalog):
    catalog = open_catalog()
    assert catalog.tasks("train") is catalog.tasks("train")


def test_a_closed_catalog_leaves_no_process_and_can_be_asked_again(open_catalog):
    catalog = open_catalog()
    catalog.corpus()
    pid = catalog._worker.pid
    asyncio.run(catalog.aclose())
    assert not Path(f"/proc/{pid}").exists()
    assert len(catalog.tasks("validation")) == 4


@pytest.mark.parametrize("fault", ["hang", "crash"])
def test_pitfall_29_a_training_whose_corpus_breaks_ends_with_exit_code_1(
    command, toy_file, tmp_path, fault
):
    params = {f"{fault}_on": ["train/l1/000000"], "at_turn": 0}
    environment = {"id": "toy_faulty", "params": params, "reset_timeout_s": 0.2}
    path = toy_file(environment=environment)
    done = command("train.py", "--schedule", path, "--output", tmp_path / "run", timeout=200)
    assert done.returncode == 1
    assert "error: environment 'toy_faulty': " in done.stderr
    assert "corpus()" in done.stderr


def test_no_question_leaves_a_worker_in_the_event_loop_that_closed(open_catalog):
    """A signal interrupts a question; the next one is answered all the same."""

    def run_until_cancelled(question: Any) -> Any:
        async def bounded() -> Any:
            return await asyncio.wait_for(question, 0.5 if first else 60.0)

        return asyncio.run(bounded())

    catalog = open_catalog(call="corpus", fault="hang")
    catalog._run = run_until_cancelled
    first = True
    begin = time.monotonic()
    with pytest.raises(TimeoutError):
        catalog.corpus()
    first = False
    assert time.monotonic() - begin < 30
    asyncio.run(catalog.aclose())
    assert len(catalog.tasks("train")) == 4
    assert os.getpid() != catalog._worker.pid
