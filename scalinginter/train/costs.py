"""What training has spent so far: the x axes of every comparison. Evaluation costs nothing."""

from dataclasses import asdict, dataclass

from scalinginter.config.schema import TrainConfig


@dataclass(slots=True)
class Costs:
    """Cumulative costs of training."""

    turns: int = 0
    generated_tokens: int = 0
    forward_tokens: int = 0  # through the model, in rollouts and updates
    seconds: float = 0.0
    steps: int = 0

    def metrics(self) -> dict[str, float]:
        """Return the `cost/*` metrics."""
        return {f"cost/{unit}": float(value) for unit, value in asdict(self).items()}


class Budget:
    """The limits of a run. The first one that is met ends it."""

    def __init__(self, config: TrainConfig) -> None:
        self.limits = config.budget.limits()
        if config.num_steps is not None:
            steps = min(self.limits.get("steps", float("inf")), config.num_steps)
            self.limits["steps"] = float(steps)

    def fraction(self, costs: Costs) -> float:
        """Return the share that is spent of the limit that is nearest, in [0, 1]."""
        spent = asdict(costs)
        return min(1.0, max(spent[unit] / limit for unit, limit in self.limits.items()))

    def leading(self, costs: Costs) -> tuple[str, float]:
        """Return the limit that is nearest, as unit and amount."""
        spent = asdict(costs)
        return max(self.limits.items(), key=lambda item: spent[item[0]] / item[1])
