"""The same work by TRL and by ScalingInter, in CPU-seconds: `python benchmarks/trl_comparison.py`.

Each side trains a small Qwen3 with GRPO, 4 prompts x 8 episodes a step, every episode of exactly
H environment steps with 20 generated tokens each, on one thread, in a process and a Python
environment of its own. They take their steps in turns, never at the same time, so that a busy
machine slows both alike. TRL's environment is made under `benchmarks/.work/` on first use.
README.md says what is counted and where the two differ.
"""

import argparse
import datetime
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
WORK = HERE / ".work"
CONSTRAINTS = ROOT / ".ci" / "constraints.txt"
BASELINE = HERE / "baselines" / "trl_comparison.json"
TRL_PACKAGES = ["trl==1.16.0", "accelerate", "transformers", "datasets", "jmespath"]
GOALS = {8: 1 / 3, 16: 1 / 4}  # CPU-seconds a step, ours over TRL's
UPDATE_GOALS = {8: 1 / 2}  # the same of the update alone
GROWTH_GOAL = 2.05  # our step at twice the horizon, over the step

SHAPES = {
    "tiny": {
        "hidden_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "intermediate_size": 384,
    },
    "small": {
        "hidden_size": 256,
        "num_hidden_layers": 6,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 32,
        "intermediate_size": 768,
    },
}
VOCABULARY = 1000

ROWS = [  # label, key, digits
    ("CPU-seconds a step", "cpu_s", 2),
    ("  rollout", "rollout_cpu_s", 2),
    ("  update", "update_cpu_s", 2),
    ("answers", "turns", 0),
    ("environment steps", "env_steps", 0),
    ("opening tokens", "opening_tokens", 0),
    ("observation tokens a turn", "observation_tokens", 0),
    ("generated tokens", "generated_tokens", 0),
    ("trained tokens", "trained_tokens", 0),
    ("forwarded tokens, rollout", "rollout_forwarded", 0),
    ("forwarded tokens, update", "update_forwarded", 0),
    ("generated tokens a CPU-second", "rate", 0),
    ("peak memory, MiB", "peak_mib", 0),
    ("load of the machine", "load", 1),
]


def trl_python() -> Path:
    """TRL's interpreter; its environment is made where it is missing."""
    folder = WORK / "trl"
    python = folder / "bin" / "python"
    mark = folder / ".installed"
    if not mark.exists():
        print(f"making TRL's environment in {folder.relative_to(ROOT)} (minutes)", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--constraint", CONSTRAINTS]
        subprocess.run([*pip, "torch"], check=True)  # alone: its pin chooses the CPU build
        subprocess.run([*pip, *TRL_PACKAGES], check=True)
        mark.touch()
    return python


class Side:
    """One side in a process of its own, which takes a step whenever it is told to."""

    def __init__(self, python, script: str, args: argparse.Namespace, horizon: int, *extra: str):
        self._name = Path(script).stem
        shape = SHAPES[args.size] | {"vocab_size": VOCABULARY}
        command = [str(python), str(HERE / script), "--workdir", str(WORK / self._name)]
        command += ["--shape", json.dumps(shape), "--horizon", str(horizon)]
        command += ["--steps", str(args.steps), "--lockstep", *extra]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        environment["PYTHONPATH"] = str(ROOT) if script == "trl_ours.py" else ""
        self._log = WORK / f"{self._name}_h{horizon}.log"
        with self._log.open("w") as errors:
            self._process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def step(self) -> dict[str, float]:
        """Have it take one step while the other side waits; return what it cost."""
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._answer('{"step"')

    def finish(self) -> dict:
        """Wait for its end; return its versions and the number of its parameters."""
        about = self._answer('{"versions"')
        self._process.communicate()
        return about

    def _answer(self, start: str) -> dict:
        for line in self._process.stdout:
            if line.startswith(start):
                return json.loads(line)
        self._process.wait()
        sys.exit(f"{self._name} ended before its time:\n{self._log.read_text()[-4000:]}")


def medians(steps: list[dict]) -> dict[str, float]:
    """Medians of the steps from the third on: the first ones warm caches up."""
    steps = steps[2:] or steps
    values = {key: statistics.median(step[key] for step in steps) for key in steps[0]}
    values["rate"] = values["generated_tokens"] / values["cpu_s"]
    values["least_cpu_s"] = min(step["cpu_s"] for step in steps)
    return values


def compare(args: argparse.Namespace, horizon: int) -> dict:
    """Let the sides step in turns; the contexts of TRL's first step set the lengths of ours."""
    equal = ["--equal-answers"] if args.equal_answers else []
    theirs = Side(trl_python(), "trl_side.py", args, horizon, *equal)
    trl_steps, own_steps = [theirs.step()], []
    names = ("opening_tokens", "observation_tokens")
    lengths = [f"--{name.replace('_', '-')}={trl_steps[0][name]:.0f}" for name in names]
    own = Side(sys.executable, "trl_ours.py", args, horizon, *lengths)
    for step in range(args.steps):
        if step:
            trl_steps.append(theirs.step())
        own_steps.append(own.step())
    about = {"trl": theirs.finish(), "ours": own.finish()}
    trl, ours = medians(trl_steps), medians(own_steps)
    done = "turns" if args.equal_answers else "env_steps"
    if ours[done] != trl[done] or ours["trained_tokens"] != ours["generated_tokens"]:
        sys.exit(f"not the same work: {trl} and {ours}")
    return {
        "horizon": horizon,
        "size": args.size,
        "equal_answers": args.equal_answers,
        "medians": {"trl": trl, "ours": ours},
        "ratio": ours["cpu_s"] / trl["cpu_s"],
        "ratio_per_generated_token": trl["rate"] / ours["rate"],
        "goal": GOALS.get(horizon),
        "update_ratio": ours["update_cpu_s"] / trl["update_cpu_s"],
        "update_goal": UPDATE_GOALS.get(horizon),
        "about": about,
        "steps": {"trl": trl_steps, "ours": own_steps},
    }


def show(result: dict) -> None:
    """Print one horizon: both sides, their ratio, the goal where there is one."""
    medians = result["medians"]
    goals = {"cpu_s": result["goal"], "update_cpu_s": result["update_goal"]}
    print(f"\nH = {result['horizon']:<29} {'TRL':>10} {'ours':>10} {'ours/TRL':>10}   goal")
    for label, key, digits in ROWS:
        trl, ours = medians["trl"][key], medians["ours"][key]
        ratio = f"{ours / trl:.3f}" if trl else "-"
        goal = f"   {goals[key]:.3f}" if goals.get(key) else ""
        print(f"{label:<33} {trl:>10.{digits}f} {ours:>10.{digits}f} {ratio:>10}{goal}")
    print(f"{'ratio a generated token':<55} {result['ratio_per_generated_token']:>10.3f}")
    padding = "padding in our update (goal: at most 5 %)"
    print(f"{padding:<55} {medians['ours']['padding_share']:>10.1%}")
    unique = "our update: forwarded over unique tokens (1.05)"
    print(f"{unique:<55} {medians['ours']['forwarded_over_unique']:>10.3f}", flush=True)


def show_growth(results: list[dict]) -> None:
    """Print what our step costs at twice the horizon, for horizons that are twice another."""
    cost = {result["horizon"]: result["medians"]["ours"]["cpu_s"] for result in results}
    for horizon in sorted(cost):
        if 2 * horizon in cost:
            growth = cost[2 * horizon] / cost[horizon]
            line = f"our step from H = {horizon} to H = {2 * horizon}"
            print(f"{line}: {growth:.2f} times (goal from 8 to 16: {GROWTH_GOAL})", flush=True)


def cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def write(path: Path, result: dict) -> None:
    """Put a result in the place of the last one of its kind; the others stay."""

    def kind(of: dict) -> tuple:
        return of["size"], of["equal_answers"], of["horizon"]

    record = rounded(result) | {
        "date": datetime.date.today().isoformat(),
        "machine": {"cpu": cpu_model(), "cores": os.cpu_count()},
        "python": platform.python_version(),
        "command": shlex.join(["python", "benchmarks/trl_comparison.py", *sys.argv[1:]]),
    }
    kept = json.loads(path.read_text())["results"] if path.exists() else []
    results = sorted([record, *(old for old in kept if kind(old) != kind(record))], key=kind)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"results": results}, indent=1) + "\n")


def rounded(value):
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return round(value, 4) if isinstance(value, float) else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--horizon", default="4,8,16", help="answers an episode, comma-separated")
    parser.add_argument("--steps", type=int, default=6, help="medians are from step 3 on")
    parser.add_argument("--size", choices=sorted(SHAPES), default="tiny")
    parser.add_argument(
        "--equal-answers",
        action="store_true",
        help="TRL takes one environment step less, so that both generate equally much",
    )
    parser.add_argument("--out", type=Path, default=BASELINE)
    args = parser.parse_args()
    WORK.mkdir(exist_ok=True)
    results = []
    for horizon in map(int, args.horizon.split(",")):
        results.append(compare(args, horizon))
        show(results[-1])
        write(args.out, results[-1])
    show_growth(results)


if __name__ == "__main__":
    main()
