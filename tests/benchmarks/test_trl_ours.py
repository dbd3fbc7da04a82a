"""Our side of the comparison with TRL runs on the trainer as it is."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "trl_ours.py"
SHAPE = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "intermediate_size": 48,
    "vocab_size": 400,
}


def test_our_side_of_the_comparison_with_trl_counts_a_forced_length_step(tmp_path):
    sizes = {"horizon": 2, "steps": 1, "prompts": 2, "generations": 2, "turn-tokens": 3}
    sizes |= {"opening-tokens": 60, "observation-tokens": 12}
    options = [f"--{name}={value}" for name, value in sizes.items()]
    command = [sys.executable, SCRIPT, "--workdir", tmp_path, "--shape", json.dumps(SHAPE)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    step = json.loads(done.stdout.splitlines()[0])
    assert (step["turns"], step["generated_tokens"], step["trained_tokens"]) == (8, 24, 24)
