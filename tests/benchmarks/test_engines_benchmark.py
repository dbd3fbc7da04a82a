"""The benchmark of engines runs on the product as it is."""

import json

import pytest


@pytest.mark.slow
def test_a_small_grid_of_the_local_engine_is_measured(command, tmp_path):
    rows = tmp_path / "rows.json"
    grid = ["--models", "tiny:nano", "--engines", "local", "--horizons", 2, "--latencies", 0]
    sizes = ["--episodes", 8, "--tokens", 3, "--repeats", 1, "--output", rows]
    done = command("benchmarks/engines.py", *grid, *sizes)
    assert done.returncode == 0, done.stderr
    found = json.loads(rows.read_text())
    assert [len(found[part]) for part in ("throughput", "latency")] == [1, 1]
    assert 0 < found["throughput"][0]["prefix_cache_share"] <= 1
