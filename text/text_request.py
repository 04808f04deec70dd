"""A request for text, as the API hands it to the text layer."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from hearthd.sampling.options import SamplingParameters

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hearthd.text.grammars.grammar import Grammar
    from hearthd.text.reasoning import Reasoning
    from hearthd.text.tool_calls.tools import ToolUse

# SamplingParameters is exported for the API layer, which does not import the sampling package.
__all__ = [
    "DRY_SEQUENCE_BREAKERS",
    "SAMPLING_FIELDS",
    "SEED_COUNT",
    "ImageSquare",
    "SamplingParameters",
    "TextRequest",
]

SAMPLING_FIELDS = frozenset(field.name for field in fields(SamplingParameters))

# A client's seed is an integer of 64 bits, signed or not. Equal bits are the same seed.
SEED_COUNT = 2**64

# llama-server's default.
DRY_SEQUENCE_BREAKERS = ("\n", ":", '"', "*")


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageSquare:
    """An image, rows of a square of one, or a sound, which takes `rows` positions of a prompt.

    media   pixels u8 (H, W, 3), or the frames of a sound, f32 (T, width)
    digest  SHA-256 of the size and the media
    offset  of the first row in all rows of the media
    both_ways  whether the layers let each row see the later ones too
    grid    rows and columns of the rows, where their rotary positions have them
    lines   equal parts of the rows, between which the prompt has tokens
    """

    media: NDArray[Any]
    digest: bytes
    rows: int
    offset: int = 0
    both_ways: bool = False
    grid: tuple[int, int] | None = None
    lines: int = 1


@dataclass(frozen=True, kw_only=True)
class TextRequest:
    """A prompt to continue, and how.

    prompt        text, or token ids, which have -1 for each row of an image
    images        the squares of the images in the prompt, in their order
    max_tokens    maximum length of the answer; None continues to the end of the context
    context       tokens for the prompt and the answer; None for all of the server's
    keep_first    first tokens of a prompt that stay if it is too long and loses the oldest others;
                  None for what the server does with such prompts
    stop          non-empty strings that end the answer
    stop_token_ids  token ids that end the answer
    seed          None draws a random one
    logprobs      number of alternatives to report for each token; None reports nothing
    timeout_ms    milliseconds from acceptance to the end of the answer; None sets no limit
    cache_prompt  as in the engine's Request
    cache_salt    text that requests must have in common to share blocks of the prefix cache
    grammar       grammar that the answer must match; None allows any text
    logit_bias    (token id or text, number) pairs, added to the logits of the id or of each token
                  of the text
    dry_sequence_breakers   strings that end a repetition for DRY
    score_prompt  report log-probabilities of the prompt's tokens too, except the first
    reasoning     the reasoning before the answer; None for a model without one
    tools         tools that the answer may call; calls are removed from the text
    timings_per_token  report the timings so far with each token
    return_progress    report how much of the prompt has been read, after each chunk
    field         name of the prompt in the client's request, for errors
    """

    prompt: str | tuple[int, ...]
    max_tokens: int | None
    stop: tuple[str, ...]
    sampling: SamplingParameters
    seed: int | None
    context: int | None = None
    keep_first: int | None = None
    logprobs: int | None = None
    timeout_ms: int | None = None
    cache_prompt: bool = True
    cache_salt: str = ""
    grammar: Grammar | None = None
    logit_bias: tuple[tuple[int | str, float], ...] = ()
    dry_sequence_breakers: tuple[str, ...] = DRY_SEQUENCE_BREAKERS
    stop_token_ids: frozenset[int] = frozenset()
    score_prompt: bool = False
    reasoning: Reasoning | None = None
    tools: ToolUse | None = None
    timings_per_token: bool = False
    return_progress: bool = False
    images: tuple[ImageSquare, ...] = ()
    field: str = "prompt"
