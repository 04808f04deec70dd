"""Token counts of a request, as every route for text reports them."""

from pydantic import BaseModel, Field


class Usage(BaseModel):
    """Token counts. The token with which the model ends an answer is not counted."""

    prompt_tokens: int = Field(description="Tokens of the prompt.")
    completion_tokens: int = Field(description="Tokens of all answers.")
    total_tokens: int = Field(description="Sum of prompt_tokens and completion_tokens.")
