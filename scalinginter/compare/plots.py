"""PNG plots of a comparison: one colour, line style and marker per arm, readable at 800 px."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # before pyplot: there is no display where training runs

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, PercentFormatter

from scalinginter.compare.curves import TRAIN_GRID, Band, eval_band, train_band
from scalinginter.compare.runs import EqualCost, Run, by_arm
from scalinginter.compare.stats import Estimate

# Okabe and Ito's palette: told apart with any common colour blindness. Yellow is left out: too
# faint on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
LINES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
AXIS_LABELS = {
    "turns": "training cost: environment turns",
    "generated_tokens": "training cost: generated tokens",
    "forward_tokens": "training cost: tokens through the model",
    "seconds": "training cost: seconds",
    "steps": "training steps",
}
_STYLE = {
    "figure.figsize": (8.0, 4.6),
    "figure.dpi": 100,
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "legend.frameon": False,
    "lines.linewidth": 2.0,
}


@dataclass(frozen=True, slots=True)
class Style:
    """How one arm is drawn, the same in every plot."""

    colour: str
    line: str
    marker: str


def styles(arms: Sequence[str]) -> dict[str, Style]:
    """Give each arm its look, by its position."""
    return {
        arm: Style(
            COLOURS[i % len(COLOURS)],
            LINES[(i + i // len(COLOURS)) % len(LINES)],
            MARKERS[i % len(MARKERS)],
        )
        for i, arm in enumerate(arms)
    }


def plot_success(runs: Sequence[Run], unit: str, equal: EqualCost, path: Path) -> None:
    """Draw success on held-out tasks against a cost: mean and interval over seeds."""

    def draw(axes: Axes) -> None:
        _draw_bands(axes, runs, lambda arm: eval_band(arm, "eval/success", unit))
        if unit == equal.unit and equal.declared:
            axes.axvline(equal.limit, color="#888888", linewidth=1, linestyle=":")
            axes.annotate(
                "budget",
                (equal.limit, 0.02),
                xycoords=("data", "axes fraction"),
                rotation=90,
                ha="right",
                color="#666666",
                fontsize=9,
            )

    _figure(path, AXIS_LABELS[unit], "success, full horizon", draw, share=True)


def plot_horizon(runs: Sequence[Run], path: Path) -> None:
    """Draw the horizon in force against the turns spent."""
    _figure(
        path,
        AXIS_LABELS["turns"],
        "horizon in force (turns)",
        lambda axes: _draw_bands(
            axes, runs, lambda arm: train_band(arm, "horizon/max_turns", "turns")
        ),
    )


def plot_truncated(runs: Sequence[Run], path: Path) -> None:
    """Draw the share of training episodes that were cut by a limit, as a running mean."""
    _figure(
        path,
        AXIS_LABELS["turns"],
        "truncated training episodes",
        lambda axes: _draw_bands(
            axes,
            runs,
            lambda arm: train_band(
                arm, "rollout/truncated_share", "turns", smoothing=TRAIN_GRID // 20
            ),
        ),
        share=True,
    )


def plot_by_length(table: Mapping[int, Mapping[str, Estimate]], path: Path) -> None:
    """Draw final success per required length as bars; `table` is length -> arm -> estimate."""
    arms = list(dict.fromkeys(arm for row in table.values() for arm in row))
    width = 0.8 / len(arms)

    def draw(axes: Axes) -> None:
        for i, (arm, style) in enumerate(styles(arms).items()):
            rows = [(x, row[arm]) for x, row in enumerate(table.values()) if arm in row]
            axes.bar(
                [x + (i - (len(arms) - 1) / 2) * width for x, _ in rows],
                [e.mean for _, e in rows],
                width * 0.92,
                yerr=[[e.mean - e.low for _, e in rows], [e.high - e.mean for _, e in rows]],
                color=style.colour,
                error_kw={"elinewidth": 1.2, "capsize": 2.5, "ecolor": "#333333"},
                label=arm,
            )
        axes.set_xticks(range(len(table)), [str(length) for length in table])
        axes.grid(axis="x", visible=False)

    _figure(path, "turns that the task needs", "final success", draw, share=True)


def plot_start_and_final(
    start: Mapping[str, Mapping[int, float]], final: Mapping[str, Mapping[int, float]], path: Path
) -> None:
    """Draw success before and after training: a line per seed; both are arm -> seed -> success."""

    def draw(axes: Axes) -> None:
        for x, (arm, style) in enumerate(styles(list(final)).items()):
            for seed in sorted(start[arm].keys() & final[arm].keys()):
                ends = [start[arm][seed], final[arm][seed]]
                axes.plot([x - 0.18, x + 0.18], ends, color=style.colour, alpha=0.45, linewidth=1.2)
            for dx, values, face in ((-0.18, start[arm], "white"), (0.18, final[arm], None)):
                axes.scatter(
                    [x + dx] * len(values),
                    list(values.values()),
                    s=42,
                    marker=style.marker,
                    facecolors=face or style.colour,
                    edgecolors=style.colour,
                    linewidths=1.6,
                    zorder=3,
                    clip_on=False,
                )
        axes.set_xticks(range(len(final)), list(final))
        axes.set_xlim(-0.6, len(final) - 0.4)
        axes.grid(axis="x", visible=False)

    _figure(
        path, "hollow: at the start, filled: at the end, a line per seed", "success", draw, True
    )


def _draw_bands(
    axes: Axes, runs: Sequence[Run], band_of: Callable[[Sequence[Run]], Band | None]
) -> None:
    arms = by_arm(runs)
    uneven = len({len(group) for group in arms.values()}) > 1
    looks = styles(list(arms))
    for arm, group in arms.items():
        band = band_of(group)
        if band is None:
            continue
        style = looks[arm]
        label = f"{arm} (n={band.num_seeds})" if uneven else arm
        axes.plot(band.cost, band.mean, color=style.colour, linestyle=style.line, label=label)
        axes.fill_between(
            band.cost, band.low, band.high, color=style.colour, alpha=0.16, linewidth=0
        )
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(EngFormatter(sep=" "))


def _figure(
    path: Path, x_label: str, y_label: str, draw: Callable[[Axes], None], share: bool = False
) -> None:
    """Make one plot; `share`: the y axis is a share, shown in percent from 0."""
    with plt.rc_context(_STYLE):
        figure, axes = plt.subplots(layout="constrained")
        draw(axes)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        axes.set_ylim(bottom=0)
        if share:
            axes.set_ylim(0, min(1.02, max(0.1, axes.get_ylim()[1])))
            axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
        if axes.get_legend_handles_labels()[0]:
            labels = axes.get_legend_handles_labels()[1]
            # About 80 characters fit, and the sample and the gaps take some ten per entry.
            columns = max(1, min(len(labels), 80 // (10 + max(map(len, labels)))))
            figure.legend(loc="outside upper center", ncols=columns)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
        plt.close(figure)
