"""Drafted tokens in the engine: the same answers in fewer calls, and none where they cannot pay."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import pytest
from typing_extensions import override

from hearthd.bundle import AdapterPlaces
from hearthd.runtime.interface import ALL_LOGITS, LOGIT_MARGIN
from hearthd.server.engine.drafting.drafts import Costs
from hearthd.server.engine.drafting.prompt_lookup import PromptLookup
from hearthd.server.engine.engine import Engine
from hearthd.server.engine.generation import AdapterUse, Event, Failed, Finished, Request, Token
from hearthd.server.engine.prefixes.prefix_cache import PrefixCache
from tests.fake_runtime import FakeRuntime
from tests.server.engine.test_engine import GREEDY, SAMPLED, events_of, request_of, with_engine
from tests.server.engine.test_engine_random import Free
from tests.server.fakes import fake_service, running
from tests.server.generate_client import LIBRARY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from hearthd.sampling.options import SamplingOptions
    from hearthd.server.services.engine_options import Speculation

SIZES = (2, 4, 8)
VOCAB, CONTEXT = 24, 64


@dataclass(kw_only=True)
class Counting(FakeRuntime):
    """A fake runtime that records, for each call, its tokens and their margins."""

    calls: list[int] = field(default_factory=list)
    margins: set[tuple[int, ...]] = field(default_factory=set)
    pairs: int = 0  # calls that verified the tokens of two sequences
    breaks: Literal["", "call", "row"] = ""

    @override
    def decode(
        self,
        slots: Sequence[int],
        tokens: Sequence[int],
        positions: Sequence[int],
        margins: Sequence[int] = (),
    ) -> NDArray[np.float32]:
        self.calls.append(len(slots))
        self.margins.add(tuple(margins))
        return super().decode(slots, tokens, positions, margins)

    @override
    def verify(
        self, slot: int, tokens: Sequence[int], start: int, *, margin: int = LOGIT_MARGIN
    ) -> Iterator[NDArray[np.float32]]:
        if self.breaks == "call":
            raise RuntimeError("no memory for a call")
        self.calls.append(len(tokens))
        self.margins.add((margin,) * len(tokens))
        return self._rows(super().verify(slot, tokens, start, margin=margin))

    @override
    def verify_pair(
        self,
        slots: Sequence[int],
        tokens: Sequence[Sequence[int]],
        starts: Sequence[int],
        margins: Sequence[int] = (),
    ) -> list[Iterator[NDArray[np.float32]]]:
        if self.breaks == "call":
            raise RuntimeError("no memory for a call")
        self.pairs += 1
        self.margins.add(tuple(margins))
        each = super().verify_pair(slots, tokens, starts, margins)
        return [self._rows(each[0]), each[1]]

    def _rows(self, rows: Iterator[NDArray[np.float32]]) -> Iterator[NDArray[np.float32]]:
        yield next(rows)
        if self.breaks == "row":
            raise RuntimeError("no memory for a row")
        yield from rows


def runtime_of(
    *,
    habit: float = 30.0,
    slots: int = 1,
    drafter: Literal["", "right", "wrong"] = "",
    pair_tokens: int = 0,
) -> Counting:
    """A model of few tokens; each nearly determines the next one."""
    return Counting(
        vocab_size=VOCAB,
        context=CONTEXT,
        slots=slots,
        batch=slots,
        habit=habit,
        verify_tokens=SIZES,
        drafter=drafter,
        pair_tokens=pair_tokens,
    )


def events(
    runtime: FakeRuntime,
    request: Request,
    costs: Mapping[int, Costs] | None,
    *,
    eos: tuple[int, ...] = (),
) -> list[Event]:
    received: list[Event] = []

    async def test(engine: Engine) -> None:
        received.extend(await events_of(engine.submit(request)))

    with_engine(runtime, test, costs=costs, eos=eos)
    return received


def answer_of(events: list[Event]) -> list[tuple[int, object]]:
    """The tokens with their log-probabilities."""
    return [(event.id, event.logprobs) for event in events if isinstance(event, Token)]


class Any3:
    """A constraint: every third id, and it is complete after twenty of them."""

    def __init__(self) -> None:
        self.taken = 0

    @property
    def finished(self) -> bool:
        return self.taken == 20

    def allowed(self) -> NDArray[np.bool_]:
        return np.array([id_ % 3 == 0 for id_ in range(VOCAB)])

    def accept(self, token: int) -> None:
        assert token % 3 == 0
        self.taken += 1


@pytest.mark.parametrize("drafter", ["", "right", "wrong"])
@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize(
    "sampling",
    [
        GREEDY,
        SAMPLED,
        replace(SAMPLED, temperature=3.0, repeat_penalty=1.3, presence_penalty=0.5),
        replace(GREEDY, logprobs=3, dry_multiplier=0.5, min_tokens=9),
    ],
    ids=["greedy", "sampled", "wild", "greedy with rules"],
)
def test_drafts_change_no_token_and_no_logprob(
    sampling: SamplingOptions, constrained: bool, drafter: Literal["", "right", "wrong"]
) -> None:
    for seed in range(2):
        request = request_of(3, 4, 5, max_tokens=40, sampling=sampling, seed=seed)
        plain, drafted = (
            events(
                runtime_of(drafter=drafter),
                replace(request, constraint=Any3() if constrained else None),
                costs,
                eos=(1,),
            )
            for costs in (None, {1: Free(SIZES)})
        )
        assert answer_of(drafted) == answer_of(plain)
        assert drafted[-1] == plain[-1]


def test_a_text_that_repeats_itself_takes_fewer_calls_and_counts_accepted_tokens() -> None:
    request = request_of(3, 4, 5, max_tokens=50)
    runtime = runtime_of()
    received = events(runtime, request, {1: Free(SIZES)})
    tokens = [event for event in received if isinstance(event, Token)]
    drafted, accepted = tokens[-1].drafted, tokens[-1].accepted
    assert drafted == sum(runtime.calls) - len(runtime.calls)
    assert len(tokens) == len(runtime.calls) + accepted
    assert len(runtime.calls) < 25
    assert [token.accepted for token in tokens] == sorted(token.accepted for token in tokens)
    assert received[-1] == Finished("length")
    assert runtime.calls[-1] <= 8


def test_a_drafter_takes_fewer_calls_in_a_text_without_repetitions() -> None:
    """Its drafts begin with the second token of the answer: a prefill returns no states."""
    request = request_of(3, 4, 5, max_tokens=40)
    plain, drafted, wrong = (
        runtime_of(habit=0.0, drafter=drafter) for drafter in ("", "right", "wrong")
    )
    for runtime in (plain, drafted, wrong):
        received = events(runtime, request, {1: Free(SIZES)})
        assert len(answer_of(received)) == 40
    assert drafted.calls[0] == 1
    assert drafted.calls[1] == 8
    assert len(drafted.calls) < 8 < 30 < len(plain.calls)
    assert len(wrong.calls) >= len(plain.calls) - 8


def test_a_drafter_follows_an_adapter_and_the_prefix_cache() -> None:
    """A restored prompt has no states, and an adapter changes what the drafter begins with."""
    places = AdapterPlaces(count=1, rank=1, matrices=(), arrays=())
    answers = []
    for costs in (None, {1: Free(SIZES)}):
        runtime = runtime_of(habit=0.0, drafter="right")
        runtime.adapters = places
        cache = PrefixCache(limit_bytes=1 << 20)

        async def test(engine: Engine) -> None:
            for use in (None, AdapterUse(place=1, scale=2.0, key=b"key"), None):
                request = request_of(*range(20), max_tokens=20)
                received = await events_of(engine.submit(replace(request, adapter=use)))
                answers.append(answer_of(received))

        with_engine(runtime, test, costs=costs, cache=cache)
        assert cache.state().hits > 0
    assert answers[:3] == answers[3:]
    assert answers[0] == answers[2] != answers[1]


def test_no_draft_reaches_beyond_the_answer_or_the_context() -> None:
    for room in (1, 2, 3, 9):
        runtime = runtime_of(habit=1e6)
        prompt = [5] * (CONTEXT - room)
        (*_, token, end) = events(runtime, request_of(*prompt, max_tokens=99), {1: Free(SIZES)})
        assert end == Finished("length")
        assert isinstance(token, Token)
        assert 1 <= sum(runtime.calls) <= room + token.drafted - token.accepted


def test_a_drafted_eos_ends_the_answer() -> None:
    """An eos that occurs in the prompt is drafted when the text repeats the prompt."""
    runtime = runtime_of(habit=1e6)
    answer = [token for token, _ in answer_of(events(runtime, request_of(4, 5), None))]
    prompt, end = (4, 5, *answer, 4, 5), answer[2]
    plain = events(runtime, request_of(*prompt, max_tokens=40), None, eos=(end,))
    runtime.calls.clear()
    received = events(runtime, request_of(*prompt, max_tokens=40), {1: Free(SIZES)}, eos=(end,))
    assert answer_of(received) == answer_of(plain) == [(answer[0], None), (answer[1], None)]
    assert received[-1] == plain[-1] == Finished("stop")
    assert runtime.calls == [8]


@pytest.mark.parametrize("breaks", ["call", "row"])
def test_a_verification_that_fails_ends_its_request_only(breaks: Literal["call", "row"]) -> None:
    runtime = runtime_of()

    async def test(engine: Engine) -> None:
        runtime.breaks = breaks
        failed = await events_of(engine.submit(request_of(3, 4, 5, max_tokens=50)))
        assert isinstance(failed[-1], Failed)
        assert f"no memory for a {breaks}" in failed[-1].message
        assert answer_of(failed)
        runtime.breaks = ""
        assert (await events_of(engine.submit(request_of(3, 4, 5))))[-1] == Finished("length")

    with_engine(runtime, test, costs={1: Free(SIZES)})


def test_a_prompt_that_cannot_be_indexed_ends_its_request_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Poor(PromptLookup):
        def __init__(self, tokens: Sequence[int]) -> None:
            if len(tokens) > 3:
                raise MemoryError("no memory to index")
            super().__init__(tokens)

    async def test(engine: Engine) -> None:
        requests = (request_of(3, 4, 5, 6), request_of(3, 4, 5))
        failed, served = await asyncio.gather(*(events_of(engine.submit(r)) for r in requests))
        assert isinstance(failed[-1], Failed)
        assert "no memory to index" in failed[-1].message
        assert served[-1] == Finished("length")

    monkeypatch.setattr("hearthd.server.engine.step.PromptLookup", Poor)
    with_engine(runtime_of(slots=2), test, costs={1: Free(SIZES)})


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "logprobs"])
def test_exact_logits_are_computed_where_the_sampler_needs_them(sampling: SamplingOptions) -> None:
    runtime = runtime_of()
    events(runtime, request_of(1, 2, max_tokens=30, sampling=sampling), {1: Free(SIZES)})
    assert max(runtime.calls) > 1
    expected = ALL_LOGITS if sampling is SAMPLED else GREEDY.logit_margin
    assert {margin for row in runtime.margins for margin in row} == {expected}


def test_an_engine_of_exact_logits_computes_them_for_every_request() -> None:
    runtime = runtime_of()
    engine = Engine(runtime, eos=(), queue_limit=9, costs={1: Free(SIZES)}, exact_logits=True)
    engine.start()

    async def test() -> None:
        await events_of(engine.submit(request_of(1, 2, max_tokens=30)))

    asyncio.run(test())
    engine.close()
    assert max(runtime.calls) > 1
    assert {margin for row in runtime.margins for margin in row} == {ALL_LOGITS}


def test_in_a_batch_exact_logits_are_computed_by_sequence() -> None:
    runtime = runtime_of(slots=2)

    async def test(engine: Engine) -> None:
        both = [
            engine.submit(request_of(1, 2, max_tokens=20, sampling=sampling))
            for sampling in (GREEDY, SAMPLED)
        ]
        await asyncio.gather(*(events_of(generation) for generation in both))

    with_engine(runtime, test)
    near = GREEDY.logit_margin
    assert {(near, ALL_LOGITS), (ALL_LOGITS, near)} & runtime.margins
    assert not {(near, near), (ALL_LOGITS, ALL_LOGITS)} & runtime.margins


def test_nothing_is_drafted_when_verifying_costs_a_call_per_token() -> None:
    class Slow(Costs):
        are_known = True

        @override
        def of(self, size: int) -> float:
            return float(size)

    runtime = runtime_of(habit=1e6)
    events(runtime, request_of(3, 3, 3, max_tokens=40), {1: Slow(SIZES)})
    assert runtime.calls == [1] * 40


@pytest.mark.parametrize("speculation", ["auto", "lookup", "off"])
def test_timings_and_metrics_count_drafted_tokens(speculation: Speculation) -> None:
    service = fake_service(
        LIBRARY, speculation=speculation, habit=1e6, verify_tokens=SIZES, delay=1e-3
    )
    with running(service) as client:
        body = {"prompt": "the dog", "max_tokens": 40, "temperature": 0, "ignore_eos": True}
        timings = client.post("/generate", json=body).json()["timings"]
        metrics = client.get("/metrics").text
    if speculation == "off":
        assert timings["draft_n"] == timings["draft_n_accepted"] == 0
    else:
        assert timings["draft_n"] >= timings["draft_n_accepted"] > 0
    label = 'model="fake-model"'
    for name, count in (
        ("drafted_tokens", "draft_n"),
        ("drafted_tokens_accepted", "draft_n_accepted"),
    ):
        assert f"hearth_{name}_total{{{label}}} {timings[count]:.1f}" in metrics


@pytest.mark.parametrize("speculation", ["auto", "lookup", "off"])
def test_the_setting_says_which_sources_draft(
    monkeypatch: pytest.MonkeyPatch, speculation: Speculation
) -> None:
    asked: list[tuple[int, ...]] = []

    def draft(_: FakeRuntime, *arguments: int) -> Iterator[tuple[int, float]]:
        asked.append(arguments)
        return iter(())

    monkeypatch.setattr(FakeRuntime, "draft", draft)
    service = fake_service(
        LIBRARY, speculation=speculation, verify_tokens=SIZES, drafter="right", delay=1e-3
    )
    with running(service) as client:
        body = {"prompt": "the dog", "max_tokens": 10, "temperature": 0, "ignore_eos": True}
        assert client.post("/generate", json=body).status_code == 200
    assert bool(asked) is (speculation == "auto")
