"""What the local engine costs: `python benchmarks/engine.py`.

Two loads on one thread, in this process, with environments that cost nothing:

    actions   128 episodes (16 tasks x 8) of a 0.3 M Llama; each answer is one of 20 actions
    length    32 episodes (4 tasks x 8) of a 0.87 M Qwen3; each answer has exactly 20 tokens

`ratio` is forwarded tokens over needed ones. Needed are the distinct prefixes of all contexts
that a token was drawn from, counted here from the requests alone: what a kept cache that shares
every common prefix has to compute.
"""

import argparse
import asyncio
import functools
import gc
import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import Qwen3ForCausalLM

from scalinginter.chat.constraint import TokenTrie
from scalinginter.engine.base import GenerateRequest
from scalinginter.engine.layout import SlotLayout
from scalinginter.engine.local import LocalEngine
from scalinginter.engine.packed import PackedForward
from scalinginter.engine.sampling import choose
from scalinginter.model.attention import prepare
from scalinginter.types import Completion

STOP = 1
Log = list[tuple[list[int], Completion]]


def llama(seed: int) -> PreTrainedModel:
    """0.3 M parameters in the blocks, as `tiny:small`."""
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=600,
            hidden_size=96,
            intermediate_size=384,
            num_hidden_layers=2,
            num_attention_heads=4,
            tie_word_embeddings=True,
        )
    )


def qwen(seed: int) -> PreTrainedModel:
    """0.87 M parameters: the model of the published comparison with another trainer."""
    torch.manual_seed(seed)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=1000,
            hidden_size=128,
            intermediate_size=384,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            tie_word_embeddings=True,
        )
    )


def words(key: int, count: int) -> list[int]:
    """Ids that look random and depend on `key` alone."""
    ids = []
    for _ in range(count):
        key = (key * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        ids.append(10 + (key >> 33) % 590)
    return ids


async def act(engine: LocalEngine, log: Log, task: int, index: int, turns: int, base: int) -> None:
    """An episode of the actions load: 8 tokens of observation, then a verb, objects and a stop."""
    name = f"{task:02d}/{index}"
    ids = words(0, 40) + words(task + 1, 20)
    state = task
    for turn in range(turns):
        things = words(state, 4)
        actions = [[verb, thing] for verb in (2, 3, 4) for thing in things]
        actions += [[5, thing, other] for thing in things for other in things[:2]]
        request = GenerateRequest(
            session=name,
            prompt_ids=ids,
            max_new_tokens=16,
            seed=base + 1000 * (8 * task + index) + turn,
            stop_ids=frozenset([STOP]),
            constraint=TokenTrie.from_sequences([*action, STOP] for action in actions),
        )
        completion = await engine.generate(request)
        log.append((ids, completion))
        state = hash((state, completion.token_ids))
        ids = [*ids, *completion.token_ids, *words(state, 8)]


async def fill(engine: LocalEngine, log: Log, task: int, index: int, turns: int, base: int) -> None:
    """An episode of the length load: 20 tokens of answer, 15 of observation."""
    ids = words(0, 40) + words(task + 1, 20)
    for turn in range(turns):
        request = GenerateRequest(
            session=f"{task:02d}/{index}",
            prompt_ids=ids,
            max_new_tokens=20,
            seed=base + 1000 * (8 * task + index) + turn,
        )
        completion = await engine.generate(request)
        log.append((ids, completion))
        ids = [*ids, *completion.token_ids, *words(hash(completion.token_ids), 15)]


def needed_tokens(log: Log) -> int:
    """Distinct prefixes among the contexts that tokens were drawn from."""
    tree: dict[int, Any] = {}
    count = 0
    for prompt, completion in log:
        drawn = [i for i, forced in enumerate(completion.forced) if not forced]
        if not drawn:
            continue
        node = tree
        for token in [*prompt, *completion.token_ids[: drawn[-1]]]:
            if token not in node:
                node[token] = {}
                count += 1
            node = node[token]
    return count


async def play(
    engine: LocalEngine, episode: Callable[..., Any], tasks: int, turns: int, base: int
) -> Log:
    log: Log = []
    await asyncio.gather(
        *(episode(engine, log, t, i, turns, base) for t in range(tasks) for i in range(8))
    )
    return log


def measure(
    name: str, model: PreTrainedModel, episode: Callable[..., Any], tasks: int, turns: int
) -> None:
    """One warm-up, one measured run, one run with timers around the parts."""
    engine = LocalEngine(model, packed=prepare(model), max_context=4096)

    def once(base: int) -> tuple[Log, float, int]:
        engine.set_version(base)
        before = engine.stats.forwarded_tokens
        start = time.process_time()
        log = asyncio.run(play(engine, episode, tasks, turns, base))
        return log, time.process_time() - start, engine.stats.forwarded_tokens - before

    once(1)
    gc.collect()
    gc.freeze()  # else a full collection walks the libraries' objects in the middle of a run
    log, seconds, forwarded = once(2)
    needed = needed_tokens(log)
    generated = sum(len(completion.token_ids) for _, completion in log)
    print(
        f"{name:<12} H={turns:<3} turns {len(log):>5}  generated {generated:>6}  "
        f"forwarded {forwarded:>6}  needed {needed:>6}  ratio {forwarded / needed:.4f}  "
        f"{seconds:6.3f} CPU-s  {len(log) / seconds:7.0f} turns/s  "
        f"{forwarded / seconds:7.0f} tokens/s"
    )
    print("    " + parts(lambda: once(3)[1], model))


def parts(run: Callable[[], float], model: PreTrainedModel) -> str:
    """CPU-seconds by part; a part's time is without the parts inside it."""
    spent: dict[str, float] = {}
    stack: list[float] = []

    def timed(label: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            start = time.process_time()
            stack.append(0.0)
            result = function(*args, **kwargs)
            whole = time.process_time() - start
            spent[label] = spent.get(label, 0.0) + whole - stack.pop()
            if stack:
                stack[-1] += whole
            return result

        return wrapper

    places = [
        (SlotLayout, "attend", "attention"),
        (SlotLayout, "__init__", "indices"),
        (PackedForward, "forward", "plan"),
        (type(model), "forward", "other layers"),
        (LocalEngine, "_draw", "answers"),
        (LocalEngine, "_step", "driver"),
    ]
    originals = [(owner, name, getattr(owner, name)) for owner, name, _ in places]
    for owner, name, label in places:
        setattr(owner, name, timed(label, getattr(owner, name)))
    import scalinginter.engine.local as local

    local.choose = timed("draw", choose)
    total = run()
    local.choose = choose
    for owner, name, original in originals:
        setattr(owner, name, original)
    spent["episodes"] = total - sum(spent.values())
    order = sorted(spent.items(), key=lambda item: -item[1])
    return "  ".join(f"{label} {seconds:.3f}" for label, seconds in order)


def gflops() -> float:
    """What this thread gets just now: the other figures mean little on a busy machine."""
    left, right = torch.randn(512, 128), torch.randn(128, 384)

    def once() -> float:
        start = time.process_time()
        for _ in range(200):
            left @ right
        return 200 * 2 * 512 * 128 * 384 / (time.process_time() - start) / 1e9

    return sorted(once() for _ in range(15))[7]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--turns", type=int, nargs="*", default=[4, 8, 16])
    parser.add_argument("--action-turns", type=int, default=12)
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(f"matrix products run at {gflops():.0f} GFLOP/s (median of 15)")
    measure("actions", llama(0), act, 16, args.action_turns)
    for turns in args.turns:
        measure("length", qwen(0), fill, 4, turns)


if __name__ == "__main__":
    main()
