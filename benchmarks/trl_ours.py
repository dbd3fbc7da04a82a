"""Our side of `trl_comparison.py`: the same forced-length work through the product's own trainer.

Recipe, stack, learner and trainer are the product's. Two things are the benchmark's own, because
no recipe asks for them: an engine wrapper that lets no answer end before 20 tokens, and a reward
that depends on what was said, so that no advantage is 0 and the update leaves out no token.
"""

import argparse
import json
import os
import resource
import statistics
import string
import sys
import time
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path

import torch
import transformers
from transformers import Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import Qwen3ForCausalLM

from scalinginter.algo.registry import make_algorithm
from scalinginter.chat.renderer import Renderer
from scalinginter.config.schema import Recipe
from scalinginter.engine.base import GenerateRequest
from scalinginter.env.registry import BUILTIN
from scalinginter.env.toy import ToyForced
from scalinginter.model.load import save_policy
from scalinginter.model.tiny import make_tokenizer
from scalinginter.rollout.family import Families
from scalinginter.rollout.stack import RolloutStack, load_recipe_policy
from scalinginter.track.journal import Journal
from scalinginter.train.checkpoint import CheckpointStore
from scalinginter.train.display import NoDisplay
from scalinginter.train.learner import Learner
from scalinginter.train.loop import Trainer, seed_torch
from scalinginter.train.run import make_accelerator
from scalinginter.train.signals import StopSignal

ENVIRONMENT = "benchmark_forced"


class RewardedWords(ToyForced):
    """`toy_forced`, rewarded for what is said: a hash of each action, a share of 1 per turn."""

    def __init__(self, *, turns: int, prompt_words: int, observation_words: int) -> None:
        super().__init__(prompt_words=prompt_words, observation_words=observation_words)
        self._reward_per_turn = 1.0 / turns

    def step(self, action):
        observation, _, terminated, truncated, info = super().step(action)
        share = zlib.crc32(action.encode()) / 2**32
        return observation, share * self._reward_per_turn, terminated, truncated, info


class FullLength:
    """The engine, with every answer as long as it may be: a stop id on the way ends nothing."""

    def __init__(self, engine) -> None:
        self._engine = engine

    def __getattr__(self, name):
        return getattr(self._engine, name)

    async def generate(self, request: GenerateRequest):
        return await self._engine.generate(replace(request, min_new_tokens=request.max_new_tokens))


class TimedRollouts:
    """The trainer's rollouts; keeps what the last step's cost, and its episodes."""

    def __init__(self, rollouts) -> None:
        self._rollouts = rollouts

    def __getattr__(self, name):
        return getattr(self._rollouts, name)

    def take(self, step, horizons):
        start = time.process_time()
        self.collection = self._rollouts.take(step, horizons)
        self.cpu_s = time.process_time() - start
        return self.collection


def make_policy(folder: Path, shape: dict[str, int]) -> None:
    """Write the Qwen3 model and a word tokenizer whose ids fill the vocabulary exactly."""
    fillers = ("".join(pair) for pair in product(string.ascii_uppercase, repeat=3))
    words = [ToyForced.instructions, *ToyForced().corpus(), "Answer with one action nothing else"]
    tokenizer = make_tokenizer(words)
    missing = shape["vocab_size"] - len(tokenizer)
    tokenizer = make_tokenizer([*words, " ".join(next(fillers) for _ in range(missing))])
    assert len(tokenizer) == shape["vocab_size"]
    torch.manual_seed(0)
    config = Qwen3Config(
        **shape,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    save_policy(Qwen3ForCausalLM(config), tokenizer, folder)


def make_recipe(args: argparse.Namespace, folder: Path, prompt: int, observation: int) -> Recipe:
    """The recipe of the workload; `prompt` and `observation` are words."""
    return Recipe.model_validate(
        {
            "name": "benchmark",
            "environment": {
                "id": ENVIRONMENT,
                "params": {
                    "turns": args.horizon,
                    "prompt_words": prompt,
                    "observation_words": observation,
                },
            },
            "horizon": {"kind": "fixed", "turns": args.horizon},
            "model": {"path": str(folder), "device": "cpu", "num_threads": 1},
            "rollout": {
                "num_tasks": args.prompts,
                "group_size": args.generations,
                "max_concurrent": args.prompts * args.generations,
                "max_tokens_per_turn": args.turn_tokens,
                "max_context": 4096,
            },
            "train": {"num_steps": args.steps, "learning_rate": 2e-4},
            "eval": {"horizon": args.horizon},
            "track": {"mlflow": False},
        }
    )


def words_for_tokens(folder: Path, args: argparse.Namespace) -> tuple[int, int]:
    """How many words make an opening and a turn's context of the tokens asked for."""
    renderer = Renderer.for_tokenizer(transformers.AutoTokenizer.from_pretrained(folder))
    rules = f"{ToyForced.instructions}\nAnswer with one action and nothing else."
    messages = [{"role": "system", "content": rules}, {"role": "user", "content": "wait"}]
    prompt = args.opening_tokens - len(renderer.opening(messages)) + 1
    observation = args.observation_tokens - len(renderer.extend("wait", False)) + 1
    return max(1, prompt), max(1, observation)


def count_forwarded(model) -> list[int]:
    """Count the positions of every forward pass, whoever makes it."""
    counted = [0]

    def hook(module, positional, named):
        ids = named.get("input_ids", positional[0] if positional else None)
        counted[0] += ids.numel()

    model.register_forward_pre_hook(hook, with_kwargs=True)
    return counted


def measure(trainer: Trainer, steps: int, counted: list[int], lockstep: bool) -> None:
    """Take the steps and print a record of each; in lockstep, one per line of standard input."""
    for step in range(1, steps + 1):
        if lockstep and not sys.stdin.readline():
            sys.exit("the comparison ended")
        counted[0] = 0
        engine, learner = trainer.stack.engine.stats.forwarded_tokens, trainer.learner
        updated = learner.forward_tokens
        cpu, wall = time.process_time(), time.perf_counter()
        trainer.step()
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        episodes = trainer.rollouts.collection.trajectories
        turns = [turn for episode in episodes for turn in episode.turns]
        later = [turn for episode in episodes for turn in episode.turns[1:]]
        generated = sum(len(turn.completion.token_ids) for turn in turns)
        rollout_forwarded = trainer.stack.engine.stats.forwarded_tokens - engine
        update_forwarded = learner.forward_tokens - updated
        assert counted[0] == rollout_forwarded + update_forwarded, "tokens are not accounted for"
        metrics = last_metrics(trainer)
        record = {
            "step": step,
            "cpu_s": cpu,
            "wall_s": wall,
            "rollout_cpu_s": trainer.rollouts.cpu_s,
            "update_cpu_s": cpu - trainer.rollouts.cpu_s,
            "episodes": len(episodes),
            "turns": len(turns),
            "env_steps": sum(turn.action is not None for turn in turns),
            "generated_tokens": generated,
            "drawn_tokens": sum(not f for turn in turns for f in turn.completion.forced),
            "trained_tokens": metrics["update/tokens"],
            "padding_share": metrics["update/padding_share"],
            "forwarded_over_unique": metrics["update/forwarded_over_unique"],
            "rollout_forwarded": rollout_forwarded,
            "update_forwarded": update_forwarded,
            "opening_tokens": statistics.mean(len(e.turns[0].context_ids) for e in episodes),
            "observation_tokens": statistics.mean([len(t.context_ids) for t in later] or [0]),
            "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "load": os.getloadavg()[0],
        }
        print(json.dumps({k: round(v, 4) for k, v in record.items()}), flush=True)


def last_metrics(trainer: Trainer) -> dict[str, float]:
    path = trainer.journal.run_dir / "metrics.jsonl"
    return json.loads(path.read_text().splitlines()[-1])["metrics"]


def profiled(trainer: Trainer) -> None:
    """Take one more step under cProfile."""
    import cProfile
    import pstats

    profile = cProfile.Profile(time.process_time)
    profile.runcall(trainer.step)
    pstats.Stats(profile).sort_stats("tottime").print_stats(45)


@contextmanager
def trainer_of(args: argparse.Namespace) -> Generator[Trainer]:
    """Make the product's trainer for the workload that `args` describe."""
    BUILTIN[ENVIRONMENT] = f"{__name__}:RewardedWords"
    folder, run_dir = args.workdir / "policy", args.workdir / "run"
    make_policy(folder, args.shape)
    recipe = make_recipe(args, folder, *words_for_tokens(folder, args))
    for old in run_dir.glob("*.jsonl"):
        old.unlink()
    torch.set_num_threads(recipe.model.num_threads)
    seed_torch(recipe)
    with StopSignal() as stop, Journal(run_dir) as journal:
        families = Families(recipe)
        policy = load_recipe_policy(recipe, families)
        stack = RolloutStack(recipe, policy, families)
        stack.engine = FullLength(stack.engine)
        algorithm = make_algorithm(recipe.algorithm)
        learner = Learner(policy, recipe.train, algorithm, make_accelerator(recipe), args.steps)
        checkpoints = CheckpointStore(run_dir / "checkpoints", keep=1)
        parts = (recipe, policy, algorithm, learner, stack, journal, checkpoints, stop)
        trainer = Trainer(*parts, NoDisplay())
        trainer.rollouts = TimedRollouts(trainer.rollouts)
        yield trainer
        stop.finish(stack.aclose())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--workdir", type=Path, required=True)
    parser.add_argument("--shape", type=json.loads, required=True, help="of Qwen3Config, as JSON")
    parser.add_argument("--horizon", type=int, required=True)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--generations", type=int, default=8)
    parser.add_argument("--turn-tokens", type=int, default=20)
    parser.add_argument("--opening-tokens", type=int, required=True)
    parser.add_argument("--observation-tokens", type=int, required=True)
    parser.add_argument("--lockstep", action="store_true", help="wait for a line before a step")
    parser.add_argument("--profile", action="store_true", help="one more step under cProfile")
    args = parser.parse_args()

    with trainer_of(args) as trainer:
        measure(trainer, args.steps, count_forwarded(trainer.policy.model), args.lockstep)
        if args.profile:
            profiled(trainer)
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    parameters = sum(p.numel() for p in trainer.policy.model.parameters())
    print(json.dumps({"versions": versions, "parameters": parameters}), flush=True)


if __name__ == "__main__":
    main()
