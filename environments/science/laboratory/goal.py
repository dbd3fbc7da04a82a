"""What an experiment asks for, and how far an episode has got with it."""

from dataclasses import dataclass, field

from environments.science.laboratory.world import Event

COMMITMENTS = frozenset({"answer", "box", "focus"})
"""Events that count once and for all: one that the goal does not ask for ends the episode."""


@dataclass(frozen=True, slots=True)
class Milestone:
    """An event that the goal asks for, and those that must have happened before it counts."""

    event: Event
    needs: frozenset[Event] = frozenset()


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal in words and its milestones, in any order that their `needs` allow."""

    text: str
    milestones: tuple[Milestone, ...]


@dataclass(slots=True)
class Progress:
    """How far an episode has got."""

    goal: Goal
    reached: set[Event] = field(default_factory=set)
    failed: bool = False

    @property
    def share(self) -> float:
        """The share of the milestones that are reached, in [0, 1]."""
        return len(self.reached) / len(self.goal.milestones)

    @property
    def success(self) -> bool:
        return not self.failed and len(self.reached) == len(self.goal.milestones)

    def take(self, event: Event) -> None:
        """Count an event. A commitment that is wrong, or made without the evidence, fails."""
        asked = [m for m in self.goal.milestones if m.event == event and m.needs <= self.reached]
        if asked:
            self.reached.add(event)
        elif event[0] in COMMITMENTS:
            self.failed = True
