"""Whether weights can be trusted: finite, and the same on all ranks."""

import torch

from scalinginter.errors import RunFailedError


def blown_up(model: torch.nn.Module) -> list[str]:
    """Return the names of the parameters that are NaN or infinite somewhere."""
    return [name for name, value in model.named_parameters() if not value.isfinite().all()]


def refuse_blown_up(model: torch.nn.Module, what: str, setting: str) -> None:
    """Raise `RunFailedError` if a parameter is NaN or infinite after `what`."""
    names = blown_up(model)
    if names:
        raise RunFailedError(
            f"{what} left weights that are not finite ({len(names)} tensors, {names[0]} first); "
            f"they are not saved. Start a new run with a lower {setting}"
        )


def fingerprint(model: torch.nn.Module) -> float:
    """Return a number that differs between any two ranks whose weights have drifted apart."""
    return sum(float(p.detach().double().abs().sum()) for p in model.parameters())
