"""Evaluate one policy at several horizons and show the figures side by side."""

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from scalinginter.config.schema import Recipe
from scalinginter.errors import RunFailedError
from scalinginter.eval.metrics import summarize
from scalinginter.eval.runner import evaluate, held_out_tasks
from scalinginter.eval.table import figures_table
from scalinginter.rollout.chat_stack import ChatStack
from scalinginter.rollout.family import Families
from scalinginter.rollout.stack import RolloutStack, load_recipe_policy
from scalinginter.types import Trajectory


def sweep(
    recipe: Recipe, policy_path: Path | None, horizons: list[int], outputs: Sequence[Path]
) -> int:
    """Play the held-out tasks at each horizon, print a table, and write it as JSON to `outputs`.

    Every horizon meets the same tasks and seeds. Returns 1 if every episode of a horizon failed.
    Raises `RunFailedError` if the figures were printed and cannot be written.
    """
    torch.set_num_threads(recipe.model.num_threads)
    families, path = Families(recipe), None if policy_path is None else str(policy_path)
    tasks = {horizon: held_out_tasks(families, recipe.eval, horizon) for horizon in horizons}
    stack: ChatStack | RolloutStack
    if recipe.engine.kind == "openai":
        stack = chat_stack = ChatStack(recipe, families)
        named = chat_stack.engine.description
    else:
        policy = load_recipe_policy(recipe, families, path=path)
        stack = RolloutStack(recipe, policy, families)
        named = path or recipe.model.path
    with asyncio.Runner() as runner:
        results, broken = {}, []
        try:
            runner.run(stack.start())
            for horizon in horizons:
                played = runner.run(evaluate(stack.collector(), tasks[horizon], recipe.eval))
                results[horizon] = summarize(played)
                if not results[horizon]["eval/episodes"]:
                    broken.append(_all_failed(horizon, played[0]))
        finally:
            runner.run(stack.aclose())
    config = recipe.eval
    title = (
        f"{recipe.environment_names}, {config.split} split: {len(tasks[horizons[0]])} tasks x "
        f"{config.samples_per_task} episodes, temperature {config.temperature:g}"
    )
    if len(broken) < len(horizons):
        print(title, "", *figures_table(results), sep="\n")
    if isinstance(stack, ChatStack):
        print(f"\n{stack.engine.usage}")
    if outputs:
        document = {
            "policy": named,
            "environment": recipe.environment_names,
            "eval": config.model_dump(mode="json"),
            "by_horizon": results,
        }
        _write(json.dumps(document, indent=1), outputs)
        print(f"Figures: {outputs[0]}")
    for sentence in broken:
        print(f"error: {sentence}", file=sys.stderr)
    return 1 if broken else 0


def _write(text: str, outputs: Sequence[Path]) -> None:
    for output in outputs:
        try:
            output.write_text(text)
        except OSError as error:
            raise RunFailedError(
                f"the figures above could not be written to {output}: {error.strerror}; keep them, "
                "or make room and evaluate again"
            ) from error


def _all_failed(horizon: int, first: Trajectory) -> str:
    return (
        f"at {horizon} turns every episode failed, retries included. The first one, on task "
        f"{first.task.id}, ended with {first.stop}: {first.error}"
    )
