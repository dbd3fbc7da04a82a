"""`report.md` of a comparison, and the few lines of it that a terminal shows."""

import shlex
import textwrap
from pathlib import Path

from scalinginter.compare.markdown import (
    aligned,
    count,
    estimate_of,
    image,
    mean,
    run_name,
    show,
    signed,
    table,
)
from scalinginter.compare.results import PerSeed, Results, load_results, values_of
from scalinginter.compare.runs import UNITS, Run
from scalinginter.compare.settings import settings_section, strangers
from scalinginter.compare.stats import Paired
from scalinginter.track.run_folder import replace_file

REPORT = "report.md"
PLOTS = "plots"
# Of the bootstrap interval over n seeds, for normal seeds: what 3,000 simulations gave.
COVERAGE = {2: 0.50, 3: 0.75, 4: 0.80, 5: 0.83, 6: 0.85}


def write_report(root: str | Path, plots: bool = True) -> Path:
    """Write `<root>/report.md` from the journals and return its path.

    `plots`: draw them too; without, the report shows those that are there already. Raises UserError
    when `root` holds no run.
    """
    results = load_results(root)
    if plots and results.finished:
        draw_plots(results)
    path = results.root / REPORT
    replace_file(path, render(results))
    return path


def render(results: Results) -> str:
    """Return the whole report as Markdown."""
    sections = [_verdict(results), _incomplete(results)]
    if results.finished:
        sections += [_results(results), _costs(results), _curves(results), _lengths(results)]
        sections += [_tests(results)]
    sections += [settings_section(results), _commands(results)]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def summary_lines(root: str | Path) -> list[str]:
    """Return the verdict and the main table for a terminal, 80 columns where names allow."""
    results = load_results(root)
    lines = [part for line in _headlines(results) for part in textwrap.wrap(line, 80)]
    if results.finished:
        rows = [
            [arm, *(estimate_of(t, arm) for t in (results.start, results.final, results.auc))]
            for arm in results.arms
        ]
        lines += ["", *aligned([["arm", "at start", "final success", "area"], *rows])]
    for standing in dict.fromkeys(map(_standing, results.incomplete)):
        names = [run_name(run) for run in results.incomplete if _standing(run) == standing]
        lines += textwrap.wrap(f"{standing}: {', '.join(names)}", 80, subsequent_indent="  ")
    path = results.root / REPORT
    return [*lines, f"report: {path}"] if path.is_file() else lines


def draw_plots(results: Results) -> None:
    """Draw every plot of the report into `<root>/plots/`."""
    from scalinginter.compare import plots  # matplotlib takes a second: not for a config error

    runs, folder = results.finished, results.root / PLOTS
    for unit in UNITS[:4]:
        plots.plot_success(runs, unit, results.equal, folder / f"success_{unit}.png")
    plots.plot_horizon(runs, folder / "horizon.png")
    plots.plot_truncated(runs, folder / "truncated.png")
    done = {arm for arm in results.arms if results.final[arm]}
    start, final = (
        {a: t[a] for a in results.arms if a in done} for t in (results.start, results.final)
    )
    plots.plot_start_and_final(start, final, folder / "start_and_final.png")
    if results.by_length:
        plots.plot_by_length(results.by_length, folder / "by_length.png")


def _verdict(results: Results) -> list[str]:
    lines = [f"# {results.root.resolve().name}: horizons at equal cost", ""]
    headline, *rest = _headlines(results)
    lines += [f"**{headline}**", "", *(f"- {line}" for line in rest)]
    lines += [f"- {line}" for line in results.final_verdict.details]
    if results.finished and not results.equal.declared:
        lines.append(
            "- The runs share no budget: they are compared at the turns that the shortest run "
            "spent. Give `--budget turns=N` for runs that stop at equal cost."
        )
    others = strangers(results)
    if others:
        lines.append(
            f"- **Not a comparison of horizons alone**: the arms also differ in "
            f"{', '.join(f'`{path}`' for path in others)} (see Settings)."
        )
    return lines


def _headlines(results: Results) -> list[str]:
    lines = [results.final_verdict.headline]
    best = max(
        (arm for arm in results.arms if results.final[arm]),
        key=lambda arm: mean(results.final, arm),
        default=None,
    )
    if best is None:
        return lines
    start, final = mean(results.start, best), mean(results.final, best)
    factor = f"{final / start:.1f} times the start" if start > 0 else "from nothing"
    lines.append(f"{best} went from {start:.3f} to {final:.3f} success: {factor}.")
    return [*lines, results.auc_verdict.headline]


def _incomplete(results: Results) -> list[str]:
    if not results.incomplete:
        return []
    lines = ["## Incomplete", "", "These runs are in no number, table or plot below:", ""]
    return lines + [
        f"- `{run_name(run)}`: {_standing(run)}{_spent(run)}" for run in results.incomplete
    ]


def _standing(run: Run) -> str:
    return "not started" if run.status == "missing" else run.status


def _spent(run: Run) -> str:
    turns = run.last("cost/turns")
    return f", after {turns:,.0f} turns" if turns is not None else ""


def _results(results: Results) -> list[str]:
    rows = []
    for arm in results.arms:
        start, final = values_of(results.start, arm), values_of(results.final, arm)
        gain = mean(results.final, arm) / mean(results.start, arm) if start and sum(start) else 0
        rows.append(
            [
                arm,
                str(len(final)),
                estimate_of(results.start, arm),
                f"**{estimate_of(results.final, arm)}**" if final else "-",
                f"x {gain:.1f}" if gain else "-",
                estimate_of(results.auc, arm),
            ]
        )
    header = ["arm", "seeds", "success at start", "final success", "gain", "area under the curve"]
    return [
        "## Results",
        "",
        f"Held-out tasks at the full horizon, at {results.what}. Mean over seeds [95% bootstrap "
        "interval over seeds]. The area is the mean height of the success curve over that cost.",
        "",
        *table(header, rows),
        "",
        _seed_note(results),
        *image(results.root, f"{PLOTS}/start_and_final.png", "Success at the start and at the end"),
    ]


def _seed_note(results: Results) -> str:
    fewest = min(len(seeds) for seeds in results.final.values() if seeds)
    if fewest == 1:
        return "One seed has no spread: the intervals above are points and mean nothing."
    if fewest in COVERAGE:
        coverage = COVERAGE[fewest]
        return (
            f"With {fewest} seeds the interval spans little more than the seeds themselves; it "
            f"holds the true mean in about {coverage:.0%} of cases, not in 95%: read it as a range."
        )
    return ""


def _costs(results: Results) -> list[str]:
    labels = [unit.replace("_", " ") for unit in UNITS]
    rows = [[arm, *(_cost(results.costs[u], arm) for u in UNITS)] for arm in results.arms]
    return [
        "## Cost of training",
        "",
        "Mean over seeds at the end of the run (smallest to largest). Evaluation is not counted. "
        "Seconds depend on what else the machine did.",
        "",
        *table(["arm", *labels], rows),
    ]


def _cost(table: PerSeed, arm: str) -> str:
    values = values_of(table, arm)
    if not values:
        return "-"
    low, high = count(min(values)), count(max(values))
    return count(sum(values) / len(values)) + (f" ({low} to {high})" if low != high else "")


def _curves(results: Results) -> list[str]:
    titles = {f"success_{unit}": f"Success against {unit.replace('_', ' ')}" for unit in UNITS[:4]}
    titles |= {
        "horizon": "Horizon in force",
        "truncated": "Share of training episodes cut by a limit (running mean)",
    }
    lines = [
        "## Curves",
        "",
        "Lines are means over seeds, bands 95% bootstrap intervals over seeds.",
    ]
    for name, title in titles.items():
        lines += image(results.root, f"{PLOTS}/{name}.png", title)
    return lines


def _lengths(results: Results) -> list[str]:
    if not results.by_length:
        return []
    arms = [arm for arm in results.arms if results.final[arm]]
    rows = [
        [str(length), *(show(row[arm]) if arm in row else "-" for arm in arms)]
        for length, row in results.by_length.items()
    ]
    return [
        "## Final success by the turns that a task needs",
        "",
        *table(["turns needed", *arms], rows),
        *image(results.root, f"{PLOTS}/by_length.png", "Final success by required length"),
    ]


def _tests(results: Results) -> list[str]:
    lines = [
        "## Paired tests over seeds",
        "",
        "Sign-flip test, exact and two-sided, on the differences of runs with the same seed; d is "
        "the mean difference over its standard deviation. `smallest p` is what this number of "
        "seeds can give at best.",
    ]
    for name, values in (("Final success", results.final), ("Area under the curve", results.auc)):
        pairs = results.pairs(values)
        if not pairs:
            return [*lines, "", "No two arms share a finished seed."]
        header = [name, "difference", "ahead", "d", "p", "smallest p"]
        lines += ["", *table(header, [_pair_row(pair) for pair in pairs])]
    if results.task_pairs():
        lines += [
            "",
            "Over the held-out tasks (tasks resampled, policies as trained: says whether other "
            "tasks would give the same answer, not whether other seeds would):",
            "",
            *table(
                ["Final success", "difference", "tasks"],
                [[f"{a} - {b}", signed(e), str(e.num_seeds)] for a, b, e in results.task_pairs()],
            ),
        ]
    return lines


def _pair_row(pair: Paired) -> list[str]:
    return [
        f"{pair.a} - {pair.b}",
        signed(pair.difference),
        f"{pair.wins} of {pair.difference.num_seeds}",
        f"{pair.effect:+.1f}" if pair.effect is not None else "-",
        f"{pair.p_value:.3g}",
        f"{pair.smallest_p:.3g}",
    ]


def _commands(results: Results) -> list[str]:
    lines = ["## Commands", ""]
    if results.plan:
        command = shlex.join(results.plan.command)
        lines += ["The comparison. The same line goes on where it stopped; it skips finished runs:"]
        lines += ["", "```", command, "```", ""]
    lines += ["One run again, in a folder of its own:", "", "```"]
    lines += [
        f"python train.py --schedule {shlex.quote(str(run.folder / 'config.yaml'))} "
        f"--output {shlex.quote(f'runs/again-{run.arm}-seed{run.seed}')}"
        for run in results.runs
        if run.config
    ]
    unfinished = [run for run in results.incomplete if run.config]
    lines += ["```"]
    if unfinished:
        lines += ["", "An incomplete run alone:", "", "```"]
        lines += [f"python train.py --resume {shlex.quote(str(run.folder))}" for run in unfinished]
        lines += ["```"]
    return lines
