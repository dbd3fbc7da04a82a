"""What people see of a run: progress on standard output, or warnings alone."""

from collections.abc import Generator
from contextlib import contextmanager, nullcontext

from scalinginter.track.progress import Progress


class Display:
    """Takes the metrics of every step; `progress` None: warnings alone are shown."""

    def __init__(self, progress: Progress | None = None) -> None:
        self._progress, self._warned = progress, False

    def report(self, step: int, stage: str, metrics: dict[str, float], share: float) -> None:
        """Show the metrics of a step; `share`: of the budget that is spent."""
        cut = metrics.get("stop/context", 0.0)
        if cut > 0.5 and not self._warned:
            self._warned = True
            self.say(_context_warning(step, cut))
        if self._progress is None:
            return
        if stage == "eval":
            self._progress.evaluation(step, metrics)
        else:
            self._progress.update(step, metrics, share)

    def say(self, line: str) -> None:
        """Print a line that stays."""
        if self._progress is None:
            print(line, flush=True)
        else:
            self._progress.note(line)


class NoDisplay(Display):
    """Shows nothing: what the processes of a run have that are not its first."""

    def report(self, step: int, stage: str, metrics: dict[str, float], share: float) -> None:
        """Show nothing."""

    def say(self, line: str) -> None:
        """Print nothing."""


@contextmanager
def shown(title: str, quiet: bool) -> Generator[Display]:
    """Show a run while it goes on."""
    with nullcontext() if quiet else Progress(title) as progress:
        yield Display(progress)


def _context_warning(step: int, share: float) -> str:
    return (
        f"warning: {share:.0%} of the episodes of step {step} ended because the next prompt would "
        "not fit rollout.max_context, whatever the horizon; raise it, or lower "
        "rollout.max_tokens_per_turn"
    )
