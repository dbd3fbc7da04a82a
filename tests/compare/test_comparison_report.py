"""The report says what the journals say, names what differs and what is missing."""

import re
from pathlib import Path

import pytest

from scalinginter.cli.main import main
from scalinginter.compare.report import render, summary_lines, write_report
from scalinginter.compare.results import load_results, success_by_task
from scalinginter.compare.runs import Plan
from scalinginter.errors import UserError
from scalinginter.track.journal import Journal
from scalinginter.track.run_folder import read_config, write_config

SHORT = {"kind": "fixed", "turns": 5}
SCALED = {"kind": "staged", "stages": [5, 20], "at_fraction": [0.0, 0.5]}


@pytest.fixture
def root(write_run, tmp_path: Path) -> Path:
    """Three seeds of two arms: success goes to 0.4 and to 0.8 in straight lines from 0.1."""
    from_config = read_config(write_run("short", 0, lambda f: 0.1))
    for seed in range(3):
        config = from_config | {"seed": seed}
        write_run("short", seed, lambda f: 0.1 + 0.3 * f, config=config | {"horizon": SHORT})
        write_run("scaled", seed, lambda f: 0.1 + 0.7 * f, config=config | {"horizon": SCALED})
    arms = {"short": from_config, "scaled": from_config}
    command = ("python", "train.py", "--schedule", "a b.yaml", "--seeds", "0,1,2")
    Plan(arms, (0, 1, 2), command).write(tmp_path / "cmp")
    return tmp_path / "cmp"


def row(report: str, first: str) -> list[str]:
    """Return the cells of the first table row that starts with this cell."""
    line = next(line for line in report.splitlines() if line.startswith(f"| {first} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_verdict_stands_at_the_top(root: Path) -> None:
    lines = render(load_results(root)).splitlines()
    assert "scaled leads on final success at equal turns (1,000): 0.80 (short 0.40)" in lines[2]


def test_the_table_has_start_final_gain_and_area(root: Path) -> None:
    assert row(render(load_results(root)), "scaled") == [
        "scaled",
        "3",
        "0.100 [0.100, 0.100]",
        "**0.800 [0.800, 0.800]**",
        "x 8.0",
        "0.450 [0.450, 0.450]",
    ]


def test_the_costs_are_those_of_the_last_line(root: Path) -> None:
    report = render(load_results(root))
    costs = report[report.index("## Cost") :]
    assert row(costs, "short") == ["short", "1,000", "4,000", "40,000", "50", "10"]


def test_success_by_required_length_has_a_column_per_arm(root: Path) -> None:
    cells = row(render(load_results(root)), "11")
    assert cells == ["11", "0.200 [0.200, 0.200]", "0.400 [0.400, 0.400]"]


def test_the_paired_test_says_what_three_seeds_can_give_at_best(root: Path) -> None:
    assert row(render(load_results(root)), "scaled - short")[-2:] == ["0.25", "0.25"]


def test_the_report_says_how_often_the_interval_of_three_seeds_is_right(root: Path) -> None:
    assert "holds the true mean in about 75% of cases" in render(load_results(root))


def test_the_commands_can_be_pasted(root: Path) -> None:
    report = render(load_results(root))
    assert "python train.py --schedule 'a b.yaml' --seeds 0,1,2" in report
    assert f"--schedule {root}/scaled/seed2/config.yaml --output" in report


def test_pitfall_22_recipes_that_differ_in_the_horizon_only_are_said_to(root: Path) -> None:
    assert "differ in the horizon block and in nothing else" in render(load_results(root))


def test_pitfall_22_another_difference_is_named_at_the_top(root: Path, write_run) -> None:
    for seed in range(3):
        config = read_config(root / "scaled" / f"seed{seed}")
        config["train"]["learning_rate"] = 0.5
        write_run("scaled", seed, lambda f: f, config=config)
    report = render(load_results(root))
    assert "**Not a comparison of horizons alone**" in report.split("## ")[0]
    assert row(report, "`train.learning_rate`")[1:] == ["`0.001`", "`0.5`"]


def test_where_numbers_go_may_differ_between_runs(root: Path, write_run) -> None:
    config = read_config(root / "scaled" / "seed0") | {"track": {"mlflow": False}}
    write_run("scaled", 0, lambda f: f, config=config | {"checkpoint": {"every": 3}})
    assert "differ in the horizon block and in nothing else" in render(load_results(root))


def test_a_difference_in_a_later_seed_is_named_too(root: Path, write_run) -> None:
    config = read_config(root / "scaled" / "seed2")
    config["eval"]["horizon"] = 99
    write_run("scaled", 2, lambda f: f, config=config)
    assert row(render(load_results(root)), "`eval.horizon`")[1:] == ["`20`", "`20 or 99 (by seed)`"]


@pytest.mark.parametrize("status", ["running", "stopped", "failed"])
def test_incomplete_runs_are_named_and_leave_the_numbers(root: Path, write_run, status) -> None:
    config = read_config(root / "scaled" / "seed1")
    write_run("scaled", 1, lambda f: 0.0, turns=300, status=status, config=config)
    report = render(load_results(root))
    assert f"- `scaled/seed1`: {status}, after 300 turns" in report
    assert row(report, "scaled")[1:4:2] == ["2", "**0.800 [0.800, 0.800]**"]
    assert f"python train.py --resume {root}/scaled/seed1" in report


def test_a_planned_run_that_never_started_is_named(root: Path) -> None:
    (root / "short" / "seed2" / "run.json").unlink()
    assert "- `short/seed2`: not started" in render(load_results(root))


def test_without_a_finished_run_the_report_still_names_the_runs(write_run, tmp_path: Path) -> None:
    write_run("short", 0, lambda f: f, status="running")
    report = render(load_results(tmp_path / "cmp"))
    assert "Nothing to compare yet" in report
    assert "`short/seed0`: running" in report


def test_runs_without_a_common_budget_are_compared_at_the_shortest(write_run, tmp_path) -> None:
    folder = write_run("short", 0, lambda f: f, turns=500)
    config = read_config(folder) | {"train": {"num_steps": 10, "budget": {"turns": None}}}
    write_run("short", 0, lambda f: f, turns=500, config=config)
    write_run("long", 0, lambda f: f, turns=1000, config=config)
    report = render(load_results(tmp_path / "cmp"))
    assert "at equal turns (500): 1.00 (long 0.50)" in report
    assert "The runs share no budget" in report


def test_a_run_that_starts_at_zero_has_no_gain_factor(write_run, tmp_path: Path) -> None:
    write_run("short", 0, lambda f: f)
    assert row(render(load_results(tmp_path / "cmp")), "short")[4] == "-"


def test_held_out_tasks_are_compared_where_the_episodes_were_kept(root: Path, write_run) -> None:
    for arm, won in (("short", 2), ("scaled", 7)):
        config = read_config(root / arm / "seed0")
        tasks = {f"t{i}": i < won for i in range(8)}
        write_run(arm, 0, lambda f: f, config=config, tasks=tasks)
    section = render(load_results(root)).split("Over the held-out tasks")[1]
    assert row(section, "scaled - short")[1].startswith("+0.625 [")


def test_the_asked_evaluation_counts_per_task_without_its_failures(write_run) -> None:
    folder = write_run("a", 0, lambda f: f, tasks={"t": True})
    with Journal(folder) as journal:
        journal.episodes(11, "train", [{"task": "t", "success": True, "stop": "terminated"}])
        journal.episodes(11, "eval", [{"task": "t", "success": False, "stop": "horizon"}])
        journal.episodes(11, "eval", [{"task": "t", "success": True, "stop": "env_error"}])
    assert success_by_task(folder, {11: 1.0}) == {"t": 0.0}
    assert success_by_task(folder, {10: 0.25, 11: 0.75}) == {"t": 0.25}


def test_held_out_tasks_are_compared_at_equal_cost_and_not_at_the_end(write_run, tmp_path) -> None:
    """A run of 2,000 turns without a common budget is read at the 1,000 of the other."""
    for arm, turns in (("short", 1000), ("long", 2000)):
        folder = write_run(arm, 0, lambda f: f, turns=turns, tasks={"t": True, "u": True})
        config = read_config(folder) | {"train": {"num_steps": 10, "budget": {"turns": None}}}
        write_config(folder, config)
        with Journal(folder) as journal:
            lost = [{"task": task, "success": False, "stop": "horizon"} for task in "tu"]
            journal.episodes(5, "eval", lost)
    assert load_results(tmp_path / "cmp").by_task == {
        "long": {"t": 0.0, "u": 0.0},
        "short": {"t": 1.0, "u": 1.0},
    }


def test_every_image_of_the_report_exists_and_is_small(root: Path) -> None:
    report = write_report(root)
    images = re.findall(r"!\[.*?\]\((.*?)\)", report.read_text())
    sizes = {name: (root / name).stat().st_size for name in images}
    assert len(sizes) == 8
    assert max(sizes.values()) < 150_000


def test_a_report_without_plots_shows_no_broken_image(root: Path) -> None:
    assert "![" not in write_report(root, plots=False).read_text()


def test_every_row_of_a_table_has_as_many_cells_as_its_header(root: Path, write_run) -> None:
    config = read_config(root / "scaled" / "seed0")
    config["environment"]["params"] = {"pattern": "a|b"}
    write_run("scaled", 0, lambda f: f, config=config)
    sizes: list[set[int]] = [set()]
    for line in render(load_results(root)).splitlines():
        cells = re.split(r"(?<!\\)\|", line)
        if len(cells) > 1:
            sizes[-1].add(len(cells))
        else:
            sizes.append(set())
    assert all(len(table) <= 1 for table in sizes)


def test_the_same_journals_give_the_same_report(root: Path) -> None:
    assert render(load_results(root)) == render(load_results(root))


def test_the_terminal_gets_verdict_table_and_path(root: Path) -> None:
    write_report(root, plots=False)
    lines = summary_lines(root)
    assert lines[0].startswith("scaled leads")
    assert lines[-1] == f"report: {root / 'report.md'}"
    assert any(re.match(r"short +0\.100", line) for line in lines)


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no comparison"):
        write_report(tmp_path)


def test_a_report_that_cannot_be_written_is_one_error(root: Path, capsys) -> None:
    (root / "report.md").mkdir()
    assert main(["report", str(root)]) == 2
    assert "the report cannot be written: Is a directory" in capsys.readouterr().err
