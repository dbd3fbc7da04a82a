"""What arrives in MLflow when run folders are replayed to it."""

import fcntl
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from scalinginter.errors import UserError
from scalinginter.track.journal import METRICS, Journal, read_metrics
from scalinginter.track.mlflow_replay import STATE
from scalinginter.track.mlflow_writer import sync
from scalinginter.track.run_folder import set_status

# raised inside MLflow when its tracing is first used
pytestmark = pytest.mark.filterwarnings("ignore:.*Any type hint is inferred")


@pytest.fixture
def client(store: str) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(store)


def run_id(run_dir: Path) -> str:
    return json.loads((run_dir / STATE).read_text())["run_id"]


def points(client: Any, run_dir: Path, name: str) -> list[tuple[int, float]]:
    history = client.get_metric_history(run_id(run_dir), name)
    return [(point.step, point.value) for point in history]


def test_metrics_arrive_with_their_steps_and_times(make_run, store, client, tmp_path) -> None:
    run_dir = make_run()
    sync([run_dir], store, tmp_path.name)
    history = client.get_metric_history(run_id(run_dir), "reward/mean")
    expected = [
        (line.step, line.metrics["reward/mean"], int(line.time * 1000))
        for line in read_metrics(run_dir, "train")
    ]
    assert [(point.step, point.value, point.timestamp) for point in history] == expected


def test_a_name_that_mlflow_refuses_is_mapped(make_run, store, client, tmp_path) -> None:
    run_dir = make_run()
    sync([run_dir], store, tmp_path.name)
    assert len(points(client, run_dir, "a_b_c_")) == 4


def test_the_cost_that_an_evaluation_repeats_is_not_a_second_point(
    make_run, store, client, tmp_path
) -> None:
    run_dir = make_run()
    sync([run_dir], store, tmp_path.name)
    assert points(client, run_dir, "cost/turns") == [(1, 10), (2, 20), (3, 30), (4, 40)]


def test_metrics_of_the_cold_start_have_names_of_their_own(
    make_run, store, client, tmp_path
) -> None:
    run_dir = make_run()
    with Journal(run_dir) as journal:
        journal.log(1, "sft", {"loss/policy": 3.0})
    sync([run_dir], store, tmp_path.name)
    assert points(client, run_dir, "sft/loss/policy") == [(1, 3.0)]


def test_a_run_is_flat_named_by_arm_and_seed_and_tagged(make_run, store, client, tmp_path) -> None:
    run_dir = make_run()
    sync([run_dir], store, tmp_path.name)
    data, info = client.get_run(run_id(run_dir)).data, client.get_run(run_id(run_dir)).info
    tags = {key: data.tags.get(key) for key in ("comparison", "arm", "seed", "mlflow.parentRunId")}
    assert (info.run_name, tags) == (
        "scaled seed 3",
        {"comparison": "cmp", "arm": "scaled", "seed": "3", "mlflow.parentRunId": None},
    )


def test_the_recipe_becomes_parameters_and_long_values_are_cut(
    make_run, store, client, tmp_path
) -> None:
    run_dir = make_run()
    sync([run_dir], store, tmp_path.name)
    params = client.get_run(run_id(run_dir)).data.params
    lengths = {key: len(value) for key, value in params.items()}
    assert lengths == {"seed": 1, "train.num_steps": 2, "train.note": 6000}


def test_sending_twice_is_sending_once(make_run, store, client, tmp_path) -> None:
    run_dir = make_run()
    sync([run_dir], store, tmp_path.name)
    first = run_id(run_dir), points(client, run_dir, "reward/mean")
    sync([run_dir], store, tmp_path.name)
    assert (run_id(run_dir), points(client, run_dir, "reward/mean")) == first


def test_a_writer_that_died_before_it_noted_its_place_doubles_nothing(
    make_run, write_steps, store, client, tmp_path
) -> None:
    run_dir = make_run(steps=2)
    sync([run_dir], store, tmp_path.name)
    before = shutil.copy(run_dir / STATE, tmp_path / "before.json")
    write_steps(run_dir, 3, 6)
    sync([run_dir], store, tmp_path.name)
    shutil.copy(before, run_dir / STATE)
    sync([run_dir], store, tmp_path.name)
    assert [step for step, _ in points(client, run_dir, "reward/mean")] == [1, 2, 3, 4, 5, 6]


def test_a_run_that_was_made_but_not_noted_is_taken_up(make_run, store, client, tmp_path) -> None:
    run_dir = make_run()
    sync([run_dir], store, tmp_path.name)
    first = run_id(run_dir)
    state = json.loads((run_dir / STATE).read_text())
    (run_dir / STATE).write_text(json.dumps(state | {"run_id": None}))
    sync([run_dir], store, tmp_path.name)
    assert run_id(run_dir) == first


def test_pitfall_36_after_a_resume_the_same_run_has_every_step_once(
    make_run, write_steps, store, client, tmp_path
) -> None:
    run_dir = make_run(steps=2)
    saved = {name: (run_dir / name).stat().st_size for name in (METRICS, "episodes.jsonl")}
    write_steps(run_dir, 3, 5)
    sync([run_dir], store, tmp_path.name)
    first = run_id(run_dir)
    with Journal(run_dir) as journal:
        journal.truncate(saved)
    sync([run_dir], store, tmp_path.name)  # sees the short journal
    write_steps(run_dir, 3, 8)
    sync([run_dir], store, tmp_path.name)
    steps = [step for step, _ in points(client, run_dir, "reward/mean")]
    assert (run_id(run_dir), steps) == (first, [1, 2, 3, 4, 5, 6, 7, 8])


def test_a_resume_that_outran_the_writer_is_noticed(
    make_run, write_steps, store, client, tmp_path
) -> None:
    run_dir = make_run(steps=2)
    saved = {name: (run_dir / name).stat().st_size for name in (METRICS, "episodes.jsonl")}
    write_steps(run_dir, 3, 4)
    sync([run_dir], store, tmp_path.name)
    with Journal(run_dir) as journal:
        journal.truncate(saved)
    write_steps(run_dir, 3, 9)
    sync([run_dir], store, tmp_path.name)
    assert [step for step, _ in points(client, run_dir, "reward/mean")] == list(range(1, 10))


def test_a_run_that_was_deleted_in_mlflow_is_made_anew(make_run, store, client, tmp_path) -> None:
    run_dir = make_run()
    sync([run_dir], store, tmp_path.name)
    client.delete_run(run_id(run_dir))
    sync([run_dir], store, tmp_path.name)
    assert len(points(client, run_dir, "reward/mean")) == 4


def test_an_ended_run_has_its_status_its_recipe_report_and_plots(
    make_run, store, client, tmp_path
) -> None:
    run_dir = make_run()
    (run_dir / "report.md").write_text("# Report")
    (run_dir / "plots").mkdir()
    (run_dir / "plots" / "success.png").write_bytes(b"png")
    ended = set_status(run_dir, "finished")
    sync([run_dir], store, tmp_path.name)
    info = client.get_run(run_id(run_dir)).info
    files = {file.path for file in client.list_artifacts(run_id(run_dir))}
    files |= {file.path for file in client.list_artifacts(run_id(run_dir), "plots")}
    assert (info.status, info.end_time) == ("FINISHED", int((ended.finished or 0) * 1000))
    assert files == {"config.yaml", "report.md", "plots", "plots/success.png"}


def test_a_resumed_run_is_running_again(make_run, store, client, tmp_path) -> None:
    run_dir = make_run()
    set_status(run_dir, "stopped")
    sync([run_dir], store, tmp_path.name)
    stopped = client.get_run(run_id(run_dir)).info.status
    set_status(run_dir, "running")
    sync([run_dir], store, tmp_path.name)
    assert (stopped, client.get_run(run_id(run_dir)).info.status) == ("KILLED", "RUNNING")


def test_a_comparison_folder_stands_for_its_runs_and_the_link_names_it(
    make_run, store, tmp_path
) -> None:
    runs = [make_run(arm) for arm in ("scaled", "fixed")]
    sentence = sync([tmp_path / "cmp"], store, tmp_path.name)
    assert len({run_id(run) for run in runs}) == 2
    assert "searchFilter=tags.comparison%20%3D%20%27cmp%27" in sentence


def test_two_writers_of_one_run_are_refused(make_run, store, tmp_path) -> None:
    run_dir = make_run()
    with (run_dir / METRICS).open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="another process"):
            sync([run_dir], store, tmp_path.name)


def test_a_deleted_experiment_is_an_error_that_says_what_to_do(
    make_run, store, client, tmp_path
) -> None:
    client.delete_experiment(client.create_experiment(tmp_path.name))
    with pytest.raises(UserError, match="was deleted"):
        sync([make_run()], store, tmp_path.name)


def test_a_step_has_so_many_traces_one_per_group(make_run, store, client, tmp_path) -> None:
    run_dir = make_run(steps=3)
    sync([run_dir], store, tmp_path.name, traces_per_step=2)
    sync([run_dir], store, tmp_path.name, traces_per_step=2)
    experiment = client.get_experiment_by_name(tmp_path.name).experiment_id
    traces = client.search_traces(locations=[experiment], run_id=run_id(run_dir))
    found = sorted((trace.info.tags["step"], trace.info.tags["task"]) for trace in traces)
    assert found == [(step, task) for step in "123" for task in ("task-0", "task-1")]


def test_a_trace_holds_the_turns_with_delta_inputs(make_run, store, client, tmp_path) -> None:
    run_dir = make_run(steps=1)
    sync([run_dir], store, tmp_path.name, traces_per_step=1)
    experiment = client.get_experiment_by_name(tmp_path.name).experiment_id
    (trace,) = client.search_traces(locations=[experiment])
    spans = [(span.span_type, span.name, span.outputs) for span in trace.data.spans[1:]]
    assert trace.data.spans[3].inputs == "room 0"
    assert spans == [
        ("LLM", "turn 0", "go 0"),
        ("TOOL", "turn 0: no action", "room 0"),
        ("LLM", "turn 1", "go 1"),
        ("TOOL", "go 1", "room 1"),
    ]
