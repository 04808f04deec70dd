"""Token counts and times of a request, as every route for text reports them."""

from typing import Any

from pydantic import BaseModel, Field

from hearthd.text.answer import AnswerSummary, Piece


class Usage(BaseModel):
    """Token counts. The token with which the model ends an answer is not counted."""

    prompt_tokens: int = Field(description="Tokens of the prompt.")
    completion_tokens: int = Field(description="Tokens of all answers.")
    total_tokens: int = Field(description="Sum of prompt_tokens and completion_tokens.")


def reports(piece: Piece | AnswerSummary) -> dict[str, Any]:
    """The fields `timings` and `prompt_progress` of an event, if the piece has them."""
    fields: dict[str, Any] = {}
    if piece.timings is not None:
        fields["timings"] = piece.timings
    if isinstance(piece, Piece) and piece.progress is not None:
        fields["prompt_progress"] = piece.progress
    return fields
