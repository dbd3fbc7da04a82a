"""Services that speak OpenAI's protocol: what is sent, what comes back, and every failure."""

import asyncio
import json
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from scalinginter.engine.base import ChatRequest
from scalinginter.engine.openai.wire import retry_after_s
from scalinginter.errors import ContextFull, EngineFailure, UserError
from scalinginter.types import Completion, FinishReason

TOO_LONG = [  # as services word it
    ("This model's maximum context length is 8192 tokens.", "context_length_exceeded"),
    ("You passed 9000 input tokens, but the model's context length is only 8192 tokens", None),
    ("The input (9000 tokens) is longer than the model's context length (8192 tokens).", None),
    ("the request exceeds the available context size", "exceed_context_size_error"),
    ("prompt is too long: 9000 tokens > 8192 maximum", None),
]


def test_the_messages_and_the_limits_are_sent_as_they_are(service, chat):
    chat()
    assert service.bodies == [
        {
            "model": "small",
            "messages": [
                {"role": "system", "content": "walk"},
                {"role": "user", "content": "go"},
            ],
            "max_tokens": 7,
            "temperature": 0.5,
            "seed": 5,
        }
    ]


def test_extra_keys_are_added_and_null_ones_left_out(service, chat):
    chat(extra_body={"max_tokens": None, "seed": None, "max_completion_tokens": 7, "top_p": 0.9})
    [body] = service.bodies
    assert set(body) == {"model", "messages", "temperature", "max_completion_tokens", "top_p"}


def test_an_answer_has_its_text_and_what_the_service_counted(service, chat):
    service.answer = lambda body: service.said("left", prompt=10, cached=4, generated=3)
    answer, engine = chat()
    assert (answer.text, answer.finish, answer.generated_tokens) == ("left", FinishReason.STOP, 3)
    assert (engine.stats.cached_tokens, engine.stats.forwarded_tokens) == (4, 10 - 4 + 3)


@pytest.mark.parametrize("missing", [{"usage": None}, {"usage": {"prompt_tokens": 3}}])
def test_a_service_that_counts_nothing_is_fine(service, chat, missing):
    service.answer = lambda body: service.said("left") | missing
    assert chat()[0].generated_tokens == 0


def test_an_answer_cut_by_the_limit_says_so(service, chat):
    service.answer = lambda body: service.said("le", finish="length")
    assert chat()[0].finish is FinishReason.LENGTH


def test_an_answer_without_content_is_empty(service, chat):
    service.answer = lambda body: service.said(None)
    assert chat()[0].text == ""


def test_the_key_goes_out_in_the_header(service, chat, monkeypatch):
    monkeypatch.setenv("MY_KEY", "secret")
    chat(api_key_env="MY_KEY")
    assert service.headers[0]["Authorization"] == "Bearer secret"


def test_no_key_is_sent_that_the_recipe_does_not_name(service, chat, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    chat()
    assert "Authorization" not in service.headers[0]


def test_a_redirect_is_not_followed(service, chat):
    service.first(service.raw("", 307, {"Location": f"{service.url}/chat/completions"}))
    with pytest.raises(EngineFailure, match="HTTP 307"):
        chat()
    assert len(service.bodies) == 1


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503])
def test_a_failure_that_passes_is_asked_again(service, chat, status):
    service.first(service.refused(status, "busy", headers={"Retry-After": "0"}))
    answer, engine = chat()
    assert (answer.text, engine.num_retries) == ("right", 1)


def test_a_service_is_left_alone_for_as_long_as_it_asks(service, chat):
    service.first(service.refused(429, "slow down", headers={"Retry-After": "0.4"}))
    began = time.monotonic()
    chat()
    assert time.monotonic() - began >= 0.4


def test_the_wait_that_a_service_asks_for_holds_for_every_request(service, with_engine):
    """The second request meets no 429 itself; it waits for the first one's."""
    service.first(service.refused(429, "slow down", headers={"Retry-After": "0.4"}))

    async def use(engine):
        first = asyncio.create_task(engine.chat(ChatRequest((), 7, 0)))
        while not engine._not_before:
            await asyncio.sleep(0.01)
        await engine.chat(ChatRequest((), 7, 1))
        answered = asyncio.get_running_loop().time()
        await first
        return answered - engine._not_before

    assert with_engine(use) >= 0


def test_a_retry_date_is_a_time_to_wait():
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=3000), usegmt=True)
    assert 2900 < retry_after_s(date) <= 3000


@pytest.mark.parametrize("header", [None, "soon", "nan", "inf"])
def test_a_retry_time_that_is_none_is_ignored(header):
    assert retry_after_s(header) is None


def test_a_service_that_goes_on_failing_fails_the_request(service, chat):
    service.answer = lambda body: service.refused(500, "oh", headers={"Retry-After": "0"})
    with pytest.raises(EngineFailure, match="HTTP 500: oh"):
        chat()
    assert len(service.bodies) == 3


def test_failures_without_a_time_are_asked_again_after_one_of_our_own(service, chat):
    service.first(service.refused(500, "oh"))
    assert chat()[1].num_retries == 1


def test_an_empty_account_is_not_asked_again(service, chat):
    service.answer = lambda body: service.refused(429, "pay", code="insufficient_quota")
    with pytest.raises(EngineFailure, match="HTTP 429: pay"):
        chat()
    assert len(service.bodies) == 1


@pytest.mark.parametrize(("message", "code"), TOO_LONG)
def test_a_conversation_that_is_too_long_is_no_failure_of_the_service(service, chat, message, code):
    service.answer = lambda body: service.refused(400, message, code)
    with pytest.raises(ContextFull):
        chat()
    assert len(service.bodies) == 1


def test_another_refusal_is_neither_that_nor_asked_again(service, chat):
    service.answer = lambda body: service.refused(400, "temperature must be below 2")
    with pytest.raises(EngineFailure, match="below 2") as caught:
        chat()
    assert not isinstance(caught.value, ContextFull)
    assert len(service.bodies) == 1


def test_an_answer_that_never_comes_is_asked_for_again(service, chat):
    silent = [True]

    async def hang():
        await asyncio.sleep(600)

    service.answer = lambda body: hang() if silent and silent.pop() else service.said("right")
    answer, engine = chat(request_timeout_s=3)
    assert answer.text == "right"
    assert engine.num_retries >= 1


def test_a_service_that_never_answers_has_a_deadline(service, chat):
    async def hang():
        await asyncio.sleep(600)

    service.answer = lambda body: hang()
    with pytest.raises(EngineFailure, match=r"no answer within 0\.2 s"):
        chat(request_timeout_s=0.2, max_retries=0)


@pytest.mark.parametrize(
    "text", ["<html>", '{"choices"', "{}", '{"choices": []}', '{"choices": [{"message": 3}]}', "3"]
)
def test_an_answer_that_makes_no_sense_is_asked_for_again(service, chat, text):
    service.first(service.raw(text))
    answer, engine = chat()
    assert (answer.text, engine.num_retries) == ("right", 1)


def test_an_answer_that_never_makes_sense_fails_and_is_shown(service, chat):
    service.answer = lambda body: service.raw("<html>gateway</html>")
    with pytest.raises(EngineFailure, match="not JSON: <html>gateway</html>"):
        chat(max_retries=0)


def test_an_error_inside_a_good_answer_is_an_error(service, chat):
    error = {"error": {"message": "the maximum context length is 5 tokens", "code": 400}}
    service.answer = lambda body: service.raw(json.dumps(error))
    with pytest.raises(ContextFull):
        chat()


def test_a_service_that_is_not_there_fails_the_request(service, chat):
    with pytest.raises(EngineFailure, match=r"127\.0\.0\.1"):
        chat(base_url="http://127.0.0.1:9/v1", max_retries=0)


@pytest.mark.parametrize("status", [401, 403])
def test_a_service_that_wants_a_key_is_told_to_the_user(service, begin, status):
    service.answer = lambda body: service.refused(status, "no key")
    with pytest.raises(UserError, match="no key was sent; set it to the name"):
        begin()


def test_a_wrong_key_is_told_by_its_variable_and_never_shown(service, begin, monkeypatch):
    monkeypatch.setenv("MY_KEY", "secret")
    service.answer = lambda body: service.refused(401, "wrong")
    with pytest.raises(UserError, match="the key in MY_KEY was refused") as caught:
        begin(api_key_env="MY_KEY")
    assert "secret" not in str(caught.value)


def test_a_key_that_is_not_set_is_told_before_anything_is_sent(service, begin):
    with pytest.raises(UserError, match="SCALINGINTER_NO_SUCH_KEY is not set"):
        begin(api_key_env="SCALINGINTER_NO_SUCH_KEY")
    assert not service.bodies


def test_an_unknown_model_is_told_with_the_nearest_and_all_there_are(service, begin):
    service.answer = lambda body: service.refused(404, "no such model")
    with pytest.raises(UserError, match=r"did you mean 'small'\?\); there are: large, small"):
        begin(model="smal")


def test_an_address_without_models_is_told_to_be_wrong(service, begin):
    service.models = None
    service.answer = lambda body: service.refused(404, "nothing here")
    with pytest.raises(UserError, match="base_url is what comes before /chat/completions"):
        begin()


def test_a_form_that_the_service_refuses_is_told_before_any_episode(service, begin):
    service.answer = lambda body: service.refused(400, "use max_completion_tokens")
    with pytest.raises(UserError, match=r"use max_completion_tokens\nengine\.extra_body"):
        begin()


def test_a_service_that_does_not_answer_at_first_is_told_to_the_user(begin):
    with pytest.raises(UserError, match="no answer after 1 attempts"):
        begin(base_url="http://127.0.0.1:9/v1", max_retries=0)


def test_a_completion_never_has_ids_and_a_foreign_count():
    with pytest.raises(ValueError, match="either ids or a number"):
        Completion((1,), (0.0,), (False,), (None,), FinishReason.STOP, 0, counted_tokens=1)
