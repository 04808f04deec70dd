"""Sampling options: the fields of a request, and the options that the sampler reads.

`SamplingParameters` is the only list of a request's sampling fields: the HTTP API, `/props` and the
command line take names, defaults, ranges and descriptions from it. To add a field, add it here and
use it in chain.py or sampler.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, Strict

from hearthd.sampling.chain import SAMPLERS
from hearthd.sampling.feedback import ADAPTIVE_P

# How far below the best logit others can be drawn at a temperature of 1, in nats; and the least
# margin, because logits are first computed with less precision: at 2,800 positions of text, the
# best one of Gemma 3 270M was then at most 2.6 below the largest.
_DRAWN_MARGIN, _LEAST_MARGIN = 11, 6

# DRY's sequence breakers: the first token id, to the ids that must follow it.
Breakers = Mapping[int, tuple[tuple[int, ...], ...]]


SAMPLER_NAMES = (*SAMPLERS, ADAPTIVE_P)
# Other names that llama.cpp knows, besides names with "-" or nothing in place of "_".
_ALIASES = {"nucleus": "top_p", "temp": "temperature", "typ": "typ_p"}
_ALIASES |= {name.replace("_", mark): name for name in SAMPLER_NAMES for mark in ("-", "")}
# Names in the requests of llama-server's clients that llama.cpp itself ignores.
_ABSENT_SAMPLERS = ("tfs_z", "typical_p")


def _known_sampler(name: str) -> str:
    known = _ALIASES.get(name, name)
    if known not in SAMPLER_NAMES:
        raise ValueError(f"one of {', '.join(SAMPLER_NAMES)}")
    return known


def _without_absent(names: Any) -> Any:
    if isinstance(names, str):  # in the environment, or as for llama-server
        names = [name.strip() for name in re.split("[,;]", names)]
    if not isinstance(names, list):
        return names
    return [name for name in names if name not in _ABSENT_SAMPLERS]


SamplerName = Annotated[
    str, AfterValidator(_known_sampler), Field(json_schema_extra={"enum": list(SAMPLER_NAMES)})
]


@dataclass(kw_only=True)
class SamplingParameters:
    """How the next token is chosen. Names and defaults are llama-server's.

    The annotations hold each field's range and description. Pydantic models that inherit from this
    class check them; the class itself does not.
    """

    temperature: Annotated[
        float,
        Field(
            ge=0,
            description="Divide the logits by this number: below 1 answers vary less, above 1 "
            "more. 0 always takes the most likely token.",
        ),
    ] = 0.8
    dynatemp_range: Annotated[
        float,
        Field(
            ge=0,
            description="Dynamic temperature: let the temperature vary by up to this much in both "
            "directions, with the entropy of the distribution. 0 is off.",
        ),
    ] = 0.0
    dynatemp_exponent: Annotated[
        float,
        Field(
            ge=0,
            description="Dynamic temperature: raise the normalized entropy to this power.",
        ),
    ] = 1.0
    top_k: Annotated[
        int,
        Field(ge=-1, description="Keep the k most likely tokens. 0 and -1 keep all."),
        AfterValidator(lambda k: max(k, 0)),
    ] = 40
    top_p: Annotated[
        float,
        Field(
            ge=0,
            le=1,
            description="Keep the smallest set of most likely tokens whose probabilities add up to "
            "at least this. 1 keeps all.",
        ),
    ] = 0.95
    min_p: Annotated[
        float,
        Field(
            ge=0,
            le=1,
            description="Keep tokens with at least this fraction of the top token's probability. "
            "0 keeps all.",
        ),
    ] = 0.05
    top_n_sigma: Annotated[
        float,
        Field(
            ge=-1,
            description="Keep the tokens whose logits are within this many standard deviations of "
            "the largest one. 0 and -1 keep all.",
        ),
    ] = -1.0
    typical_p: Annotated[
        float,
        Field(
            ge=0,
            le=1,
            description="Locally typical sampling: keep the tokens whose information content is "
            "closest to the entropy, up to this total probability. 1 keeps all.",
        ),
    ] = 1.0
    repeat_penalty: Annotated[
        float,
        Field(
            ge=0.01,
            le=100,
            description="Divide positive logits of recent tokens by this number, and multiply "
            "negative ones by it. 1 is off.",
        ),
    ] = 1.0
    repeat_last_n: Annotated[
        int,
        Field(
            ge=-1,
            description="Number of recent tokens, prompt included, that the repeat, presence and "
            "frequency penalties apply to. 0 is none, -1 is all.",
        ),
    ] = 64
    presence_penalty: Annotated[
        float,
        Field(
            ge=-100,
            le=100,
            description="Subtract this from the logit of every recent token. 0 is off.",
        ),
    ] = 0.0
    frequency_penalty: Annotated[
        float,
        Field(
            ge=-100,
            le=100,
            description="Subtract this from the logit of a recent token, once per occurrence. "
            "0 is off.",
        ),
    ] = 0.0
    dry_multiplier: Annotated[
        float,
        Field(
            ge=0,
            le=100,
            description="DRY: strength of the penalty on tokens that would extend a repetition. "
            "0 is off.",
        ),
    ] = 0.0
    dry_base: Annotated[
        float,
        Field(
            ge=1,
            le=100,
            description="DRY: multiply the penalty by this for each further repeated token.",
        ),
    ] = 1.75
    dry_allowed_length: Annotated[
        int,
        Field(
            ge=0,
            description="DRY: length of the shortest repetition, in tokens, that is penalized.",
        ),
    ] = 2
    dry_penalty_last_n: Annotated[
        int,
        Field(
            ge=-1,
            description="DRY: number of recent tokens to search for repetitions. 0 is none, "
            "-1 is all.",
        ),
    ] = -1
    xtc_probability: Annotated[
        float,
        Field(
            ge=0,
            le=1,
            description="XTC: probability that the most likely tokens are dropped. 0 is off.",
        ),
    ] = 0.0
    xtc_threshold: Annotated[
        float,
        Field(
            ge=0,
            le=1,
            description="XTC: drop all tokens above this probability except the least likely of "
            "them. Above 0.5 XTC is off.",
        ),
    ] = 0.1
    mirostat: Annotated[
        int,
        Field(
            ge=0,
            le=2,
            description="Mirostat 1 or 2: keep the surprise of the answer's tokens near "
            "mirostat_tau, in place of all samplers but the temperature. 0 is off.",
        ),
    ] = 0
    mirostat_tau: Annotated[
        float, Field(ge=0, le=64, description="Mirostat: the surprise to keep, in bits.")
    ] = 5.0
    mirostat_eta: Annotated[
        float,
        Field(ge=0, le=1, description="Mirostat: how fast it corrects itself after each token."),
    ] = 0.1
    adaptive_target: Annotated[
        float,
        Field(
            ge=-1,
            le=1,
            description="Adaptive-p: prefer tokens near this probability, if samplers name "
            "adaptive_p. Below 0 it is off.",
        ),
    ] = -1.0
    adaptive_decay: Annotated[
        float,
        Field(
            ge=0,
            le=0.99,
            description="Adaptive-p: weight of each earlier token in the mean that is kept at the "
            "target, to the power of its age.",
        ),
    ] = 0.9
    min_keep: Annotated[
        int,
        Field(ge=0, description="Minimum number of tokens that each sampler but top_k keeps."),
    ] = 0
    samplers: Annotated[
        tuple[SamplerName, ...],
        BeforeValidator(_without_absent),
        Strict(False),  # JSON has lists
        Field(max_length=32, description="Samplers to run, in this order."),
    ] = tuple(SAMPLERS)
    ignore_eos: Annotated[
        bool,
        Field(description="Forbid the tokens that end an answer."),
    ] = False
    min_tokens: Annotated[
        int,
        Field(
            ge=0,
            description="Forbid the tokens that end an answer until it has this many tokens.",
        ),
    ] = 0
    post_sampling_probs: Annotated[
        bool,
        Field(
            description="Report log-probabilities after the samplers, instead of the model's own.",
        ),
    ] = False


@dataclass(kw_only=True)
class SamplingOptions(SamplingParameters):
    """The parameters of one request, and token ids that the text layer adds.

    dry_breakers  token sequences at which a repetition ends
    logit_bias    (id, number) pairs, added to the logits before the samplers run; -inf forbids a
                  token
    logprobs      number of alternatives to report for each token; None reports nothing
    """

    dry_breakers: Breakers = field(default_factory=dict)
    logit_bias: tuple[tuple[int, float], ...] = ()
    logprobs: int | None = None

    @property
    def chain(self) -> tuple[str, ...]:
        """The names of the samplers that run before the draw, in their order."""
        if self.mirostat:
            return ("temperature",)
        return tuple(name for name in self.samplers if name != ADAPTIVE_P)

    @property
    def adapts_probability(self) -> bool:
        """Whether adaptive-p chooses the tokens."""
        return ADAPTIVE_P in self.samplers and self.adaptive_target >= 0

    @property
    def logit_margin(self) -> int | None:
        """How far below the top logit others can matter, in nats; None for every logit.

        A token that is e^-11 as likely as the best one is not drawn. A temperature divides logits,
        so the lower it is, the fewer of them matter.
        """
        if self._needs_all_logits:
            return None
        return max(_LEAST_MARGIN, math.ceil(_DRAWN_MARGIN * self.temperature))

    @property
    def _needs_all_logits(self) -> bool:
        """Whether a logit far below the top one can matter: reported, raised, or not cut off."""
        changed = (
            self.logit_bias,
            self.ignore_eos,
            self.min_tokens,
            self.repeat_penalty != 1,
            self.presence_penalty,
            self.frequency_penalty,
            self.dry_multiplier,
        )
        flattened = (
            self.temperature > 1,
            self.dynatemp_range,
            self.typical_p < 1,
            self.top_n_sigma > 0,
            self.mirostat,
            self.adapts_probability,
        )
        cut = self.temperature == 0 or self.top_k or self.top_p < 1 or self.min_p
        return self.logprobs is not None or any(changed) or any(flattened) or not cut
