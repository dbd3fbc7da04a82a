"""A real SGLang server through its OpenAI endpoint: what an evaluation of a service meets there."""

import asyncio

import pytest

from scalinginter.config.engines import EngineConfig
from scalinginter.engine.base import ChatRequest
from scalinginter.engine.openai.client import OpenAIEngine
from scalinginter.errors import ContextFull
from scalinginter.types import FinishReason

pytestmark = [pytest.mark.xdist_group("sglang"), pytest.mark.timeout(1000)]


@pytest.fixture
def chat(sglang_engine):
    """Return a function that asks the server's OpenAI endpoint once."""
    url = f"{sglang_engine.upkeep.fleet.servers[0].url}/v1"

    def send(content, new=6):
        async def whole():
            engine = OpenAIEngine(EngineConfig(kind="openai", base_url=url, model="tiny"))
            try:
                await engine.start(new, 1.0)
                messages = ({"role": "user", "content": content},)
                return await engine.chat(ChatRequest(messages, new, 2**62 + 1, 1.0))
            finally:
                await engine.aclose()

        return asyncio.run(whole())

    return send


def test_a_server_answers_messages_and_counts_tokens(chat):
    answer = chat("go north", new=6)
    assert answer.prompt_tokens > 0
    assert 0 < answer.generated_tokens <= 6
    assert answer.finish in FinishReason


def test_a_conversation_over_the_servers_context_is_told_as_such(chat):
    with pytest.raises(ContextFull, match="HTTP 400"):
        chat("go north " * 20_000)
