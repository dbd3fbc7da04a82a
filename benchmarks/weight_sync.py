"""Seconds until new weights are in force: `python benchmarks/weight_sync.py --sglang PYTHON`.

One SGLang server on a CPU; the policy changes and is brought to it, by every method, with and
without the comparison of all tensors. `--sglang` is the Python that `make sglang-cpu` makes.
"""

import argparse
import asyncio
import datetime
import json
import os
import platform
import statistics
import tempfile
from pathlib import Path

import torch

from scalinginter.config.engines import EngineConfig
from scalinginter.config.schema import ModelConfig
from scalinginter.engine.sglang.build import make_delivery, make_sglang_engine
from scalinginter.model.load import load_policy

ROOT = Path(__file__).resolve().parents[1]
BASELINE = ROOT / "benchmarks" / "baselines" / "weight_sync.json"
CASES = [
    {"method": method, "verify_every": every}
    for method in ("disk", "tensor", "distributed")
    for every in (1, 0)
]
KEYS = ("sync/bytes", "sync/checksums", "sync/repairs", "sync/logprob_gap_max")
SECONDS = ("time/sync_snapshot_s", "time/sync_servers_s")


@torch.no_grad()
def learn(model):
    """Change every weight."""
    for parameter in model.parameters():
        parameter.mul_(1.001)


async def measured(engine, policy, config, stop_id, folder, syncs):
    """Return medians over syncs by each case in turn."""
    rows = []
    await engine.start()
    try:
        for case in CASES:
            changed = EngineConfig.model_validate(config | {"sync": case})
            vocabulary = policy.model.get_input_embeddings().num_embeddings
            engine.upkeep.delivery = make_delivery(changed, policy, vocabulary, stop_id, folder)
            taken = []
            for _ in range(syncs + 1):
                learn(policy.model)
                taken.append(await engine.sync(engine.version + 1))
            row = {key: taken[-1][key] for key in KEYS}
            row |= {key: statistics.median(t[key] for t in taken[1:]) for key in SECONDS}
            rows.append(case | row)
    finally:
        await engine.aclose()
    return rows


def run(path, python, syncs):
    """Measure one model."""
    policy = load_policy(
        ModelConfig(path=path, dtype="float32"),
        corpus=lambda: ["go north and take the old key"],
        seed=0,
        device=torch.device("cpu"),
    )
    launch = {"command": [python, str(ROOT / ".ci" / "sglang_cpu.py")]}
    config = {"kind": "sglang", "launch": launch, "start_timeout_s": 1800.0}
    stop_id = policy.tokenizer.eos_token_id
    with tempfile.TemporaryDirectory() as folder:
        engine = make_sglang_engine(
            EngineConfig.model_validate(config),
            policy,
            max_context=1024,
            stop_id=stop_id,
            constrained=None,
            seed=0,
            folder=Path(folder),
        )
        work = measured(engine, policy, config, stop_id, Path(folder), syncs)
        return [{"model": path} | row for row in asyncio.run(work)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sglang", default=str(ROOT / ".venv-sglang" / "bin" / "python"))
    parser.add_argument("--models", nargs="+", default=["tiny:nano", "smollm2"])
    parser.add_argument("--syncs", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    before = os.getloadavg()[0]
    rows = [row for path in options.models for row in run(path, options.sglang, options.syncs)]
    print(f"{'model':10} {'method':7} {'compared':8} {'MB':>6} {'snapshot':>9} {'servers':>8}")
    for row in rows:
        print(
            f"{row['model']:10} {row['method']:7} {row['sync/checksums']:8.0f} "
            f"{row['sync/bytes'] / 1e6:6.1f} {row['time/sync_snapshot_s']:8.3f}s "
            f"{row['time/sync_servers_s']:7.3f}s"
        )
    result = {
        "what": f"medians of {options.syncs} syncs of one server, one thread each",
        "rows": rows,
        "load_before_and_after": [before, os.getloadavg()[0]],
        "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores",
        "date": datetime.date.today().isoformat(),
    }
    BASELINE.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
