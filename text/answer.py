"""Results of the text layer: pieces of an answer, its summary, or an embedding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import Field

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hearthd.text.tool_calls.call_format import CallDelta

FinishReason: TypeAlias = Literal["stop", "length", "timeout", "tool_calls"]


@dataclass(frozen=True)
class TokenCandidate:
    """A token that could come next, with the natural logarithm of its probability.

    `bytes` are the UTF-8 bytes that the token adds to the answer. They may be part of a character.
    """

    id: int
    text: str
    bytes: bytes
    logprob: float


@dataclass(frozen=True)
class TokenLogprobs:
    """The chosen token, and the most likely tokens at its position, best first.

    `offset` is the number of characters of the text before the token, or before the character that
    it is a part of: of the answer, or for a token of the prompt of the prompt.
    """

    chosen: TokenCandidate
    top: tuple[TokenCandidate, ...]
    offset: int


@dataclass(frozen=True, kw_only=True)
class PromptProgress:
    """How much of a prompt has been read; llama-server's `prompt_progress`."""

    total: Annotated[int, Field(description="Tokens of the prompt.")]
    cache: Annotated[
        int, Field(description="Tokens of the prompt that came from the prefix cache.")
    ]
    processed: Annotated[
        int, Field(description="Tokens of the prompt that have been read, cached ones included.")
    ]
    time_ms: Annotated[float, Field(description="Milliseconds since the request got its slot.")]


@dataclass(frozen=True, kw_only=True)
class Piece:
    """More of the answer: at most one token, and what of the text, reasoning and calls is final.

    `logprobs` has one entry per token, or none if the request did not ask for them. `timings` and
    `progress` are present if the request asks for them; a piece with `progress` has no token.
    """

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...]
    calls: tuple[CallDelta, ...] = ()
    timings: Timings | None = None
    progress: PromptProgress | None = None
    reasoning: str = ""


@dataclass(frozen=True, kw_only=True)
class Timings:
    """Durations of one answer. The first token ends the prefill and begins the decode.

    From `cache_n` on, the fields are llama-server's.
    """

    queue_ms: Annotated[
        float, Field(description="Milliseconds from acceptance until a slot was free.")
    ]
    prefill_ms: Annotated[
        float, Field(description="Milliseconds from the slot to the first token.")
    ]
    decode_ms: Annotated[
        float, Field(description="Milliseconds from the first token to the last one.")
    ]
    tokens_per_second: Annotated[
        float, Field(description="Tokens per second after the first token. 0 without such tokens.")
    ]
    cache_n: Annotated[
        int, Field(description="Tokens of the prompt that came from the prefix cache.")
    ]
    prompt_n: Annotated[int, Field(description="Tokens of the prompt that the model read.")]
    prompt_ms: Annotated[float, Field(description="The same as prefill_ms.")]
    prompt_per_token_ms: Annotated[
        float, Field(description="prompt_ms divided by prompt_n. 0 if nothing was read.")
    ]
    prompt_per_second: Annotated[
        float, Field(description="prompt_n per second of prompt_ms. 0 if nothing was read.")
    ]
    predicted_n: Annotated[int, Field(description="Tokens of the answer.")]
    predicted_ms: Annotated[float, Field(description="The same as decode_ms.")]
    predicted_per_token_ms: Annotated[
        float, Field(description="decode_ms per token after the first one. 0 without such tokens.")
    ]
    predicted_per_second: Annotated[
        float,
        Field(description="The same as tokens_per_second."),
    ]
    draft_n: Annotated[
        int, Field(description="Number of tokens that were drafted and verified by the model.")
    ]
    draft_n_accepted: Annotated[
        int, Field(description="Number of drafted tokens that the model confirmed.")
    ]
    n_ctx: Annotated[
        int,
        Field(description="Size of the context, which the prompt and the answer share, in tokens."),
    ]


@dataclass(frozen=True, kw_only=True)
class AnswerSummary:
    """The end of an answer. `cached_tokens` of the prompt came from the prefix cache.

    `stop_string` is the stop string that ended the answer, or "".
    `reasoning_tokens` of the answer's tokens are reasoning, which is separated from the text.
    `dropped_tokens` of the request's prompt were dropped from its middle, and the model did not
    read them; `prompt_tokens` does not count them.
    """

    finish_reason: FinishReason
    stop_string: str = ""
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    reasoning_tokens: int
    timings: Timings
    seed: int
    dropped_tokens: int = 0


@dataclass(frozen=True)
class EmbeddedText:
    """The mean of the hidden states of a text's tokens, scaled to length 1: f32 (hidden,)."""

    vector: NDArray[np.float32]
    tokens: int


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a completion ended, for the metrics. Times are seconds of time.monotonic.

    outcome   "cancelled" when the client disconnected first or the server stopped
    started   None when the request never left the queue
    drafted, accepted   as in the engine's Token
    """

    outcome: FinishReason | Literal["cancelled", "failed"]
    prompt_tokens: int
    cached_tokens: int
    submitted: float
    started: float | None
    token_times: tuple[float, ...]
    drafted: int
    accepted: int
