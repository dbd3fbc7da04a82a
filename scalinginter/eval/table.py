"""The figures of an evaluation as text: a row per metric, a column per horizon, 80 columns."""

from collections.abc import Mapping, Sequence

WIDTH = 80
_CELL = 8  # with the space before it
_NAMES = {"eval/success_low": "success, 95% from", "eval/success_high": "success, 95% to"}
_PREFIXES = {"success_by_length/": "success, {} turns needed", "stop/": "stopped by {}"}


def figures_table(results: Mapping[int, Mapping[str, float]]) -> list[str]:
    """Return lines that show `metric -> value` per horizon; many horizons go below each other."""
    names = dict.fromkeys(name for result in results.values() for name in result)
    labels = {n: _label(n) for n in names if not _never(n, list(results.values()))}
    head = "horizon (turns)"
    width = max(map(len, [head, *labels.values()]))
    per_block = max(1, (WIDTH - width) // _CELL)
    horizons = list(results)
    lines: list[str] = []
    for start in range(0, len(horizons), per_block):
        block = horizons[start : start + per_block]
        lines += [""] if lines else []
        lines.append(_row(head, [str(horizon) for horizon in block], width))
        for name, label in labels.items():
            cells = [_cell(name, results[horizon].get(name)) for horizon in block]
            lines.append(_row(label, cells, width))
    return lines


def _row(label: str, cells: Sequence[str], width: int) -> str:
    return f"{label:<{width}}" + "".join(f"{cell:>{_CELL}}" for cell in cells)


def _cell(name: str, value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if name.startswith("eval/success") else f"{value:.3g}"


def _never(name: str, results: Sequence[Mapping[str, float]]) -> bool:
    """Whether this is a reason to stop that no episode had."""
    return "/stop/" in name and not any(result.get(name) for result in results)


def _label(name: str) -> str:
    short = name.removeprefix("eval/")
    for prefix, words in _PREFIXES.items():
        if short.startswith(prefix):
            return words.format(short.removeprefix(prefix))
    return _NAMES.get(name) or short.replace("_at_", "@").replace("_", " ")
