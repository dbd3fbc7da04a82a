"""TRL's side of `trl_comparison.py`: its GRPOTrainer on the forced-length work.

Runs inside TRL's own environment; the product is not imported. The model is random, so what it
would say is no tool call: a logits processor leaves, at each place of an answer, the ids of a
well-formed call alone, with a free choice of the word that is said. Every token is forwarded and
drawn as in any other run of TRL's.

An episode makes `--horizon` environment steps. TRL has the model answer once more after the last
one, so an episode has one answer more than steps; that answer is generated and trained, not acted
on. `--equal-answers` takes one environment step less, so that there are `--horizon` answers.
"""

import argparse
import json
import os
import resource
import statistics
import sys
import time
import zlib
from itertools import pairwise
from pathlib import Path

os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"

import torch
import transformers
import trl
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
    TrainerCallback,
)
from transformers.utils import get_json_schema
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import qwen3_chat_template

WORDS = ("wait", "tick", "noise", "rain", "wind", "step", "clock", "drop")
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>")
SPECIALS += ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
BEFORE = '<tool_call>\n{"name": "say", "arguments": {"text": "'
AFTER = '"}}\n</tool_call><|im_end|>'


class Saying:
    """An environment that takes any text and goes on; rewarded for what was said."""

    def reset(self, **task):
        self._shares = []

    def get_reward(self) -> float:
        return sum(self._shares) / max(1, len(self._shares))

    def say(self, text: str) -> str:
        """
        Say something.

        Args:
            text: what to say

        Returns:
            What is heard.
        """
        key = zlib.crc32(f"{len(self._shares)} {text}".encode())
        self._shares.append(key / 2**32)
        Saying.calls += 1
        return " ".join(WORDS[key >> 4 * place & 7] for place in range(4))

    calls = 0


class Forced(LogitsProcessor):
    """Leaves at each place of an answer the ids that the script has there."""

    def __init__(self, script: list[list[int]]) -> None:
        self._script = script
        self._prompt = None

    def __call__(self, input_ids, scores):
        if self._prompt is None:
            self._prompt = input_ids.shape[1]
        allowed = self._script[input_ids.shape[1] - self._prompt]
        left = torch.full_like(scores, -torch.inf)
        left[:, allowed] = scores[:, allowed]
        return left


class MeasuredTrainer(GRPOTrainer):
    """Counts what each rollout makes, and its CPU-seconds."""

    def _generate_single_turn(self, prompt_ids, *args, **kwargs):
        answers, logprobs = super()._generate_single_turn(prompt_ids, *args, **kwargs)
        self.seen.append([(len(p), len(a)) for p, a in zip(prompt_ids, answers, strict=True)])
        return answers, logprobs

    def _generate_and_score_completions(self, inputs):
        self.seen, Saying.calls = [], 0
        start = time.process_time()
        batch = super()._generate_and_score_completions(inputs)
        self.rollout_cpu_s = time.process_time() - start
        self.rollout_forwarded = self.counted[0]
        self.trained_tokens = int((batch["completion_mask"] * batch["tool_mask"]).sum())
        return batch


class Clock(TrainerCallback):
    """One record per optimizer step."""

    def __init__(self) -> None:
        self.trainer = None
        self.lockstep = False

    def on_step_begin(self, args, state, control, **kwargs):
        if self.lockstep and not sys.stdin.readline():
            sys.exit("the comparison ended")
        self.trainer.counted[0] = 0
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    def on_step_end(self, args, state, control, **kwargs):
        cpu, wall = time.process_time() - self._cpu, time.perf_counter() - self._wall
        trainer = self.trainer
        seen = trainer.seen
        later = [
            now[0] - sum(before)
            for turns in zip(*seen, strict=True)
            for before, now in pairwise(turns)
        ]
        record = {
            "step": state.global_step,
            "cpu_s": cpu,
            "wall_s": wall,
            "rollout_cpu_s": trainer.rollout_cpu_s,
            "update_cpu_s": cpu - trainer.rollout_cpu_s,
            "episodes": len(seen[0]),
            "turns": sum(map(len, seen)),
            "env_steps": Saying.calls,
            "generated_tokens": sum(answer for turn in seen for _, answer in turn),
            "trained_tokens": trainer.trained_tokens,
            "rollout_forwarded": trainer.rollout_forwarded,
            "update_forwarded": trainer.counted[0] - trainer.rollout_forwarded,
            "opening_tokens": statistics.mean(prompt for prompt, _ in seen[0]),
            "observation_tokens": statistics.mean(later or [0]),
            "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "load": os.getloadavg()[0],
        }
        print(json.dumps({k: round(v, 4) for k, v in record.items()}), flush=True)


def make_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE of the words, the tool call and the chat template."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    schema = json.dumps(get_json_schema(Saying.say))
    corpus = [" " + " ".join(WORDS), *WORDS, BEFORE, AFTER, schema] * 50
    corpus += [qwen3_chat_template] * 5 + ["system user assistant tool\n"] * 20
    tokenizer.train_from_iterator(
        corpus,
        trainers.BpeTrainer(
            vocab_size=1000,
            special_tokens=list(SPECIALS),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    fast.chat_template = qwen3_chat_template
    return fast


def make_script(tokenizer: PreTrainedTokenizerFast, length: int) -> list[list[int]]:
    """The ids that may stand at each place of an answer of `length` tokens."""

    def ids(text: str) -> list[int]:
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    def words(prefix: str) -> list[int]:
        encoded = [ids(prefix + word) for word in WORDS]
        assert all(len(e) == 1 for e in encoded), "every word must be one token"
        return sorted(e[0] for e in encoded)

    before, after = ids(BEFORE), ids(AFTER)
    free = length - len(before) - len(after)
    assert free >= 1, f"a tool call takes {len(before) + len(after)} tokens and a word"
    return [[i] for i in before] + [words("")] + [words(" ")] * (free - 1) + [[i] for i in after]


def make_policy(folder: Path, shape: dict[str, int]) -> PreTrainedTokenizerFast:
    torch.manual_seed(0)
    tokenizer = make_tokenizer()
    assert len(tokenizer) <= shape["vocab_size"]
    config = Qwen3Config(
        **shape,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return tokenizer


def make_config(args: argparse.Namespace) -> GRPOConfig:
    """TRL's settings: on policy, one batch, no reference, no gradient checkpointing (cheaper)."""
    return GRPOConfig(
        output_dir=str(args.workdir / "out"),
        use_cpu=True,
        bf16=False,
        beta=0.0,
        gradient_checkpointing=False,
        per_device_train_batch_size=args.prompts * args.generations,
        num_generations=args.generations,
        max_completion_length=3072,
        max_tool_calling_iterations=args.horizon - args.equal_answers,
        max_steps=args.steps,
        learning_rate=2e-4,
        lr_scheduler_type="constant",
        chat_template_kwargs={"enable_thinking": False},
        report_to="none",
        save_strategy="no",
        logging_steps=1,
        disable_tqdm=True,
        dataloader_pin_memory=False,
        seed=0,
    )


def make_tasks(count: int) -> Dataset:
    """Prompts of one length."""
    texts = [" ".join(WORDS[n >> 3 * place & 7] for place in range(4)) for n in range(count)]
    return Dataset.from_list([{"prompt": [{"role": "user", "content": text}]} for text in texts])


def count_forwarded(model) -> list[int]:
    """Count the positions of every forward pass, padding included."""
    counted = [0]

    def hook(module, positional, named):
        ids = named.get("input_ids", positional[0] if positional else None)
        counted[0] += ids.numel()

    model.register_forward_pre_hook(hook, with_kwargs=True)
    return counted


def force(model, script: list[list[int]]) -> None:
    """Have every answer follow the script."""
    generate = model.generate

    def forced(*args, **kwargs):
        return generate(*args, logits_processor=LogitsProcessorList([Forced(script)]), **kwargs)

    model.generate = forced


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--workdir", type=Path, required=True)
    parser.add_argument("--shape", type=json.loads, required=True, help="of Qwen3Config, as JSON")
    parser.add_argument("--horizon", type=int, required=True)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--generations", type=int, default=8)
    parser.add_argument("--turn-tokens", type=int, default=20)
    parser.add_argument("--equal-answers", action="store_true")
    parser.add_argument("--lockstep", action="store_true", help="wait for a line before a step")
    args = parser.parse_args()

    torch.set_num_threads(1)
    folder = args.workdir / "policy"
    tokenizer = make_policy(folder, args.shape)
    clock = Clock()
    trainer = MeasuredTrainer(
        model=str(folder),
        args=make_config(args),
        train_dataset=make_tasks(256),
        environment_factory=Saying,
        callbacks=[clock],
    )
    clock.trainer, clock.lockstep = trainer, args.lockstep
    trainer.counted = count_forwarded(trainer.model)
    force(trainer.model, make_script(tokenizer, args.turn_tokens))
    trainer.train()
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    versions["trl"] = trl.__version__
    parameters = sum(p.numel() for p in trainer.model.parameters())
    print(json.dumps({"versions": versions, "parameters": parameters}), flush=True)


if __name__ == "__main__":
    main()
