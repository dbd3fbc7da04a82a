"""The conformance check of environments: `scalinginter check-env ID` and `check_env` in tests.

Every check plays the environment through its public API only, so it works on anybody's.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from scalinginter.env import check_play, check_tasks, registry
from scalinginter.env.base import TextEnv
from scalinginter.env.check_subject import Finding, Subject


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report."""

    name: str
    ok: bool
    detail: str

    def __str__(self) -> str:
        return f"{'ok  ' if self.ok else 'FAIL'} {self.name}: {self.detail}"


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What `check_env` found."""

    environment: str
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """True if every check passed."""
        return all(check.ok for check in self.checks)

    @property
    def failures(self) -> list[str]:
        """The names of the checks that failed."""
        return [check.name for check in self.checks if not check.ok]

    def lines(self) -> list[str]:
        """One line per check, to print."""
        return [str(check) for check in self.checks]

    def __str__(self) -> str:
        return "\n".join(self.lines())


def check_env(
    environment: str | type[TextEnv],
    params: Mapping[str, Any] | None = None,
    *,
    horizon: int | None = None,
    num_tasks: int = 8,
    seed: int = 0,
) -> CheckReport:
    """Check an environment against the contract of `scalinginter.env.base.TextEnv`.

    Args:
        environment: a registry id, `"module:Class"`, or the class.
        params: its constructor's arguments.
        horizon: turns within which the expert has to be done; None: each task's `required_turns`.
        num_tasks: tasks of each split that are played.
        seed: of the episodes.

    Raises `UserError` for an unknown environment or parameters that it refuses. All else that goes
    wrong is a failed check of the report.
    """
    subject = make_subject(environment, params, horizon=horizon, num_tasks=num_tasks, seed=seed)
    return CheckReport(subject.name, tuple(_run(subject, *check) for check in _CHECKS))


def make_subject(
    environment: str | type[TextEnv],
    params: Mapping[str, Any] | None = None,
    *,
    horizon: int | None = None,
    num_tasks: int = 8,
    seed: int = 0,
) -> Subject:
    """Build the environment that is checked or described; the arguments are those of `check_env`.

    Raises `UserError` for an unknown environment or parameters that it refuses.
    """
    if not isinstance(environment, str):
        cls, name = environment, environment.__qualname__
    else:
        cls, name = registry.load_class(environment), environment
    registry.build(cls, name, dict(params or {}))
    return Subject(cls, name, dict(params or {}), horizon, num_tasks, seed)


def _run(subject: Subject, name: str, check: Callable[[Subject], str]) -> Check:
    """Run one check. Whatever is raised in it is the environment's fault, and the finding."""
    try:
        return Check(name, True, check(subject))
    except Finding as found:
        return Check(name, False, str(found))
    except Exception as error:
        return Check(name, False, f"raised {type(error).__name__}: {str(error)[:300]}")


_CHECKS: tuple[tuple[str, Callable[[Subject], str]], ...] = (
    ("tasks are sound", check_tasks.tasks_are_sound),
    ("task ids are unique and stable", check_tasks.ids_are_unique),
    ("splits are disjoint", check_tasks.splits_are_disjoint),
    ("same in two processes", check_tasks.same_in_two_processes),
    ("reset leaks nothing", check_tasks.reset_leaks_nothing),
    ("global random state is left alone", check_tasks.global_random_state_is_left_alone),
    ("expert solves within the limit", check_play.expert_solves),
    ("success terminates", check_play.success_terminates),
    ("steps after the end are refused", check_play.refused_after_the_end),
    ("expert reward is in [0, 1]", check_play.expert_reward),
    ("random reward is in [0, 1]", check_play.random_policy),
    ("admissible actions are accepted", check_play.admissible_are_accepted),
    ("expert actions are admissible", check_play.expert_is_admissible),
    ("prompt names the actions", check_play.prompt_names_the_actions),
    ("hostile text is harmless", check_play.hostile_text),
    ("gymnasium API", check_play.gymnasium_api),
    ("speed", check_play.speed),
)
