"""What the recipes of a comparison share, and in what they differ: a section of the report."""

from scalinginter.compare.markdown import at, flow, table
from scalinginter.compare.results import Results
from scalinginter.compare.runs import by_arm

SHARED = (
    "environment.id",
    "environment.params",
    "environments",
    "model.path",
    "chat",
    "rollout",
    "algorithm",
    "train",
    "sft",
    "eval",
)
_ALLOWED = ("horizon", "horizons", "checkpoint", "track")  # the last two change no number


def settings_section(results: Results) -> list[str]:
    """Return the section that says what the arms share and in what they differ."""
    runs = [run for run in results.runs if run.config]
    if not runs:
        return []
    others = strangers(results)
    arms = {arm: group[0].config for arm, group in by_arm(runs).items()}
    lines = ["## Settings", ""]
    lines.append(
        "**The arms differ in more than the horizon block:**"
        if others
        else "The resolved recipes of the arms differ in the horizon block and in nothing else:"
    )
    lines += [
        "",
        *table(["arm", "horizon"], [[a, f"`{flow(_horizons(c))}`"] for a, c in arms.items()]),
    ]
    if others:
        rows = [
            [f"`{path}`", *(f"`{flow(others[path].get(arm))}`" for arm in arms)] for path in others
        ]
        lines += ["", *table(["setting", *arms], rows)]
    first = next(iter(arms.values()))
    shared = [
        [f"`{path}`", f"`{flow(at(first, path))}`"]
        for path in SHARED
        if at(first, path) not in (None, [])
    ]
    return [*lines, "", "Shared settings:", "", *table(["setting", "value"], shared)]


def _horizons(config: dict[str, object]) -> object:
    """The horizon block, and those of single environments where there are any."""
    own = config.get("horizons")
    return {"all": config["horizon"]} | own if isinstance(own, dict) and own else config["horizon"]


def strangers(results: Results) -> dict[str, dict[str, object]]:
    """The settings beside the horizon in which the arms differ: those that training depends on."""
    return {p: v for p, v in results.differing.items() if p.split(".")[0] not in _ALLOWED}
