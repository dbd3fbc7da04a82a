"""Numbers, settings and tables as Markdown text."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import yaml

from scalinginter.compare.results import PerSeed, values_of
from scalinginter.compare.runs import Run
from scalinginter.compare.stats import Estimate, estimate


def estimate_of(table: PerSeed, arm: str) -> str:
    """Return one arm's mean and interval, or a dash."""
    values = values_of(table, arm)
    return show(estimate(values)) if values else "-"


def show(value: Estimate) -> str:
    """Return mean and interval."""
    return f"{value.mean:.3f} [{value.low:.3f}, {value.high:.3f}]"


def signed(value: Estimate) -> str:
    """Return mean and interval of a difference."""
    return f"{value.mean:+.3f} [{value.low:+.3f}, {value.high:+.3f}]"


def mean(table: PerSeed, arm: str) -> float:
    """Return mean over the seeds of one arm; 0 without seeds."""
    values = values_of(table, arm)
    return sum(values) / len(values) if values else 0.0


def count(value: float) -> str:
    """Return a count with five digits at most."""
    return f"{value / 1e6:,.2f} M" if value >= 1e6 else f"{value:,.0f}"


def image(folder: Path, name: str, title: str) -> list[str]:
    """Return the lines that show a plot, relative to `folder`; none when it is not drawn yet."""
    return ["", f"![{title}]({name})"] if (folder / name).is_file() else []


def run_name(run: Run) -> str:
    """Return how a run is called in text."""
    return f"{run.arm}/seed{run.seed}"


def flow(value: object) -> str:
    """Return a setting as YAML on one line, without what is not set, fit for a table cell."""
    if isinstance(value, dict):
        tree = _set_only(value)
        text = yaml.safe_dump(tree, default_flow_style=True, sort_keys=False, width=10_000).strip()
    else:
        text = value if isinstance(value, str) else json.dumps(value)
    return text.replace("|", "\\|")


def _set_only(value: object) -> object:
    if not isinstance(value, dict):
        return value
    return {key: _set_only(item) for key, item in value.items() if item is not None}


def at(config: dict[str, object], path: str) -> object:
    """Return the value at a dotted path; None where there is none."""
    node: object = config
    for key in path.split("."):
        node = node.get(key) if isinstance(node, dict) else None
    return node


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a Markdown table; three columns or more: all but the first are right-aligned."""
    lines = [header, ["---"] + ["---:" if len(header) > 2 else "---"] * (len(header) - 1), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as columns of equal width, for a terminal."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
