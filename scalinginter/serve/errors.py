"""What a server says no with."""

from typing import Any


class RefusedError(Exception):
    """A request that is not carried out: an HTTP status and a sentence for whoever sent it.

    `fields` are further fields of the answer.
    """

    def __init__(self, status: int, sentence: str, **fields: Any) -> None:
        super().__init__(sentence)
        self.status = status
        self.fields = fields

    def answer(self) -> dict[str, Any]:
        """Return the JSON object that is sent."""
        return {"error": str(self), **self.fields}
