"""Log-probabilities of an answer's tokens, in the form of OpenAI's and of Ollama's API."""

from pydantic import BaseModel, Field

from hearthd.text.answer import TokenCandidate, TokenLogprobs


class TokenLogprob(BaseModel):
    """A token and its log-probability."""

    token: str = Field(description="The token's text.")
    logprob: float = Field(description="Natural logarithm of the token's probability.")
    bytes: list[int] = Field(
        description="The token's UTF-8 bytes, which may be a part of a character."
    )


class ChosenLogprob(TokenLogprob):
    """A token of the answer and its log-probability."""

    top_logprobs: list[TokenLogprob] = Field(
        description="The most likely tokens at this position, best first."
    )


def chosen_logprob(token: TokenLogprobs) -> ChosenLogprob:
    """A token of an answer in this form."""
    return ChosenLogprob(
        **dict(token_logprob(token.chosen)),
        top_logprobs=[token_logprob(top) for top in token.top],
    )


def token_logprob(candidate: TokenCandidate) -> TokenLogprob:
    """A candidate in this form."""
    return TokenLogprob(
        token=candidate.text, logprob=candidate.logprob, bytes=list(candidate.bytes)
    )
