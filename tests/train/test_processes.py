"""Several processes train what one would: the same episodes, the same weights, exact resumes.

The runs are forks of one warm server, as those of a comparison are.
"""

import json
import multiprocessing
import os
import shutil
import signal
import threading
import time

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from scalinginter.compare.jobs import Events, Job, run_jobs
from scalinginter.compare.run import PRELOAD

pytestmark = pytest.mark.slow
PARTS = ("parts", "half of parts", "fsdp2")


@pytest.fixture(scope="module")
def recipe(toy_recipe):
    """Return a function: groups and micro-batches that two ranks cannot share out evenly."""

    def make(**changes):
        settings = {
            "rollout__num_tasks": 5,
            "train__num_steps": 3,
            "train__learning_rate": 1e-4,
            "train__num_minibatches": 2,
            "train__micro_batch_tokens": 96,
            "algorithm__kl_coefficient": 0.05,
            "sft__num_demonstrations": 4,
            "sft__num_epochs": 1,
            "track__mlflow": False,
        }
        return toy_recipe(**(settings | changes))

    return make


def train(config, run_dir, processes, resume=False, started=lambda job: None):
    """Train in a number of processes; return the exit code and what they printed."""
    codes = []
    arguments = {"config": config, "run_dir": run_dir, "resume": resume, "quiet": True}
    log = run_dir.with_suffix(".log")
    job = Job(run_dir.name, arguments, log, processes)
    events = Events(started, lambda job, code: codes.append(code), *[lambda *_: None] * 2)
    run_jobs([job], "scalinginter.train.run:run_training", 1, PRELOAD, events)
    return codes[0], log.read_text()


def weights(run_dir, step=3):
    return load_file(run_dir / "checkpoints" / f"step-{step:06d}" / "policy" / "model.safetensors")


def flat(weights):
    return torch.cat([weights[name].flatten() for name in sorted(weights)])


def difference(first, second):
    """Of two sets of weights, relative to the first. Single weights with next to no gradient move
    by Adam's sign of it, so no bound holds for every one of them."""
    return ((flat(first) - flat(second)).norm() / flat(first).norm()).item()


def moved(run_dir, start, end):
    """How far the weights moved from one step to another."""
    before, after = weights(run_dir, start), weights(run_dir, end)
    return {name: after[name] - before[name] for name in after}


def episodes(run_dir):
    lines = (run_dir / "episodes.jsonl").read_text().splitlines()
    kept = ("step", "stage", "task", "group", "index", "seed", "horizon", "stop", "reward")
    return [
        [record[name] for name in kept] + [turn["token_ids"] for turn in record["turns"]]
        for record in map(json.loads, lines)
    ]


@pytest.fixture(scope="module")
def runs(recipe, tmp_path_factory):
    """A run in one process, in two with whole weights, and in two with parts of them; the latter
    two also up to their second step."""
    folder = tmp_path_factory.mktemp("runs")
    jobs = {
        "one": (recipe(), 1),
        "two": (recipe(), 2),
        "half": (recipe(train__num_steps=2), 2),
        "parts": (recipe(train__sharding="fsdp2"), 2),
        "half of parts": (recipe(train__sharding="fsdp2", train__num_steps=2), 2),
    }
    for name, (config, processes) in jobs.items():
        code, printed = train(config, folder / name, processes)
        assert code == 0, printed
    return folder


@pytest.mark.parametrize("way", ["two", "parts"])
def test_pitfall_34_two_processes_end_with_the_weights_of_one(runs, way):
    assert difference(weights(runs / "one"), weights(runs / way)) < 1e-6


@pytest.mark.parametrize("way", ["two", "parts"])
def test_two_processes_take_the_updates_of_one(runs, way):
    assert difference(*[moved(runs / name, 1, 3) for name in ("one", way)]) < 1e-3


@pytest.mark.parametrize("way", ["two", "parts"])
def test_two_processes_play_the_episodes_of_one_and_record_them_in_the_same_order(runs, way):
    assert episodes(runs / way) == episodes(runs / "one")


def test_two_processes_measure_what_one_measures(runs, numbers):
    # caches and packing are each process's own
    own = ("cost/forward_tokens", "update/forward", "update/padding")
    own += ("rollout/cached_tokens", "rollout/prefix_cache_share")
    for one, two in zip(numbers(runs / "one"), numbers(runs / "two"), strict=True):
        assert one[:2] == two[:2]
        for metrics in (one[2], two[2]):
            for name in [name for name in metrics if name.startswith(own)]:
                del metrics[name]
        assert two[2] == pytest.approx(one[2], rel=2e-4, abs=2e-6)


def learner_state(run_dir, step=3):
    file = run_dir / "checkpoints" / f"step-{step:06d}" / "learner.pt"
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize(("whole", "half", "way"), [("two", "half", "none"), PARTS])
def test_pitfall_36_two_processes_resume_to_the_bit(runs, recipe, whole, half, way):
    resumed = shutil.copytree(runs / half, runs / f"{half} resumed by two")
    assert train(recipe(train__sharding=way), resumed, 2, resume=True)[0] == 0
    assert torch.equal(flat(weights(runs / whole)), flat(weights(resumed)))
    states = [learner_state(run) for run in (runs / whole, resumed)]
    assert len(states[0]["rng"]) == 2
    torch.testing.assert_close(states[0], states[1], rtol=0, atol=0)


@pytest.mark.parametrize(("whole", "half"), [("two", "half"), PARTS[:2]])
def test_a_run_of_two_processes_is_resumed_by_one(runs, recipe, whole, half):
    resumed = shutil.copytree(runs / half, runs / f"{half} resumed by one")
    assert train(recipe(), resumed, 1, resume=True)[0] == 0
    assert difference(weights(runs / whole), weights(resumed)) < 1e-6


def test_a_checkpoint_of_divided_weights_has_the_optimizer_of_whole_ones(runs):
    two, parts = (learner_state(runs / name)["optimizer"] for name in ("two", "parts"))
    assert parts["param_groups"] == two["param_groups"]
    moments = [{n: e["exp_avg"] for n, e in one["state"].items()} for one in (two, parts)]
    assert difference(*moments) < 1e-3


def test_a_policy_that_was_trained_in_parts_is_loaded_by_transformers(runs):
    folder = runs / "parts" / "checkpoints" / "step-000003" / "policy"
    model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True)
    saved = weights(runs / "parts")
    assert all(torch.equal(model.state_dict()[name], saved[name]) for name in saved)


def in_one_and_in_two(config, folder, sharding="none"):
    """Train in one process, and in two with whole weights or with parts of them."""
    two = config | {"train": config["train"] | {"sharding": sharding}}
    for name, settings, processes in (("one", config, 1), ("two", two, 2)):
        code, printed = train(settings, folder / name, processes)
        assert code == 0, printed
    return folder / "one", folder / "two"


@pytest.mark.parametrize("sharding", ["none", "fsdp2"])
def test_pitfall_34_a_process_without_any_data_takes_part(recipe, tmp_path, sharding):
    config = recipe(
        rollout__num_tasks=1,
        rollout__group_size=8,
        sft__num_demonstrations=0,
        # With it the first gradients, of the KL to itself, are rounding, and other in parts
        model__gradient_checkpointing=sharding == "none",
    )
    both = in_one_and_in_two(config, tmp_path, sharding)
    assert difference(*map(weights, both)) < 1e-6
    assert difference(weights(both[0]), weights(both[0], 1)) > 0


def test_an_adapter_in_parts_is_trained_as_a_whole_one_under_checkpointing(recipe, tmp_path):
    config = recipe(model__lora={"r": 4}, model__gradient_checkpointing=True, train__num_steps=2)
    both = in_one_and_in_two(config, tmp_path, "fsdp2")
    file = "checkpoints/step-000002/policy/adapter_model.safetensors"
    assert difference(*[load_file(run / file) for run in both]) < 1e-6


OVER_THE_STEP = {  # what is estimated, normalised or weighed over the episodes of all processes
    "ppo": {"kind": "ppo", "critic": {"warmup_steps": 1}, "normalize_by_task": True},
    "reinforce_pp": {"kind": "reinforce_pp"},
    "gigpo": {"kind": "gigpo", "normalize_by_task": True},
    "gspo": {"kind": "gspo", "correction": "geometric_mask", "old_logprobs": "recompute"},
    "turns": {"correction": "sequence", "sequence": "turn", "old_logprobs": "recompute"},
    "kl": {"kl_coefficient": 0.05, "kl_target": 1e-4, "reference_every": 1},
    "refills": {"kind": "grpo_tcr", "max_refills": 2},
}


@pytest.mark.parametrize("algorithm", OVER_THE_STEP.values(), ids=OVER_THE_STEP)
def test_two_processes_estimate_and_weigh_as_one_does(recipe, tmp_path, algorithm):
    config = recipe(sft__num_demonstrations=0, train__num_steps=2) | {"algorithm": algorithm}
    both = in_one_and_in_two(config, tmp_path)
    assert difference(*[moved(run, 1, 2) for run in both]) < 1e-3


@pytest.mark.parametrize("name", ["ppo", "turns"])
def test_parts_of_weights_estimate_and_weigh_as_whole_ones_do(recipe, tmp_path, name):
    algorithm = OVER_THE_STEP[name]
    if name == "ppo":
        algorithm = algorithm | {"critic": {"kind": "model", "warmup_steps": 1}}
    config = recipe(sft__num_demonstrations=0, train__num_steps=2) | {"algorithm": algorithm}
    both = in_one_and_in_two(config, tmp_path, "fsdp2")
    assert difference(*[moved(run, 1, 2) for run in both]) < 1e-3
    if name == "ppo":
        assert difference(*[learner_state(run, 2)["critic"] for run in both]) < 1e-3


def in_background(act):
    """Call `act` beside the jobs of this process, from the moment when they have started."""
    return lambda job: threading.Thread(target=act, daemon=True).start()


def when_trained(run_dir, act):
    def wait():
        deadline = time.monotonic() + 120
        journal = run_dir / "metrics.jsonl"
        while not journal.exists() or journal.read_text().count('"train"') < 2:
            if time.monotonic() > deadline:
                return
            time.sleep(0.02)
        act()

    return wait


@pytest.fixture(scope="module")
def endless(recipe):
    return recipe(train__num_steps=100_000, eval__every=None, checkpoint__every=None)


def kill_one(number):
    processes = sorted(multiprocessing.active_children(), key=lambda p: p.pid or 0)
    os.kill(processes[-1].pid, number)


def test_a_signal_to_one_process_stops_all_at_the_same_step(endless, tmp_path):
    run_dir = tmp_path / "run"
    stop = in_background(when_trained(run_dir, lambda: kill_one(signal.SIGINT)))
    code, printed = train(endless, run_dir, 2, started=stop)
    assert code == 130, printed
    assert json.loads((run_dir / "run.json").read_text())["status"] == "stopped"
    saved = max((run_dir / "checkpoints").iterdir())
    assert json.loads((saved / "state.json").read_text())["processes"] == 2


def test_pitfall_35_a_process_that_is_killed_ends_the_others_and_the_run(endless, tmp_path):
    run_dir = tmp_path / "run"
    kill = in_background(when_trained(run_dir, lambda: kill_one(signal.SIGKILL)))
    code, printed = train(endless, run_dir, 2, started=kill)
    assert code == -signal.SIGKILL
    assert "Traceback" not in printed
    assert json.loads((run_dir / "run.json").read_text())["status"] == "failed"


def test_pitfall_35_an_error_of_all_processes_is_told_once(recipe, tmp_path):
    config = recipe(rollout__max_context=9, sft__num_demonstrations=0)
    code, printed = train(config, tmp_path / "run", 2)
    assert code == 1
    assert printed.count("error: no episode of step 1 could take a turn") == 1, printed
    assert printed.count("error:") == 1
