"""Slices of images in the engine's steps: other sequences go on between them, unchanged."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest
from typing_extensions import override

from hearthd.server.engine import step
from hearthd.server.engine.generation import Finished
from hearthd.server.engine.prompt import Prompt
from hearthd.server.engine.scheduler import Scheduler
from hearthd.server.engine.sequence import new_sequence
from hearthd.server.engine.step import StepRunner
from tests.fake_runtime import FakeRuntime
from tests.server.engine.test_engine import request_of, tokens_in
from tests.server.engine.test_prompts_with_images import ROWS, image
from tests.server.engine.test_prompts_with_images import request as looking
from tests.server.engine.test_prompts_with_rows import served

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from hearthd.server.engine.generation import Event, Failed, Request
    from hearthd.server.engine.sequence import Sequence

SLICES = 5


@dataclass(kw_only=True)
class Recording(FakeRuntime):
    """Records what it does, and the readings of images that have begun and were not ended."""

    did: list[str] = field(default_factory=list)
    open: int = 0
    most_open: int = 0

    @override
    def read_media(
        self, pixels: NDArray[np.uint8], size: int = 0
    ) -> Iterator[NDArray[np.float32] | None]:
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            for rows in super().read_media(pixels, size):
                self.did.append("slice")
                yield rows
        finally:
            self.open -= 1

    @override
    def decode(self, *args: object) -> NDArray[np.float32]:
        self.did.append("decode")
        return super().decode(*args)  # type: ignore[arg-type]

    @override
    def prefill(self, *args: object, **kwargs: object) -> None:
        self.did.append("prefill")
        super().prefill(*args, **kwargs)  # type: ignore[arg-type]


class Steps:
    """Steps of the engine, one after the other in this thread."""

    def __init__(self, runtime: Recording) -> None:
        self.runtime = runtime
        self.scheduler = Scheduler(slots=runtime.slots)
        self.runner = StepRunner(
            runtime,
            self.scheduler,
            cache=None,
            costs={},
            uses_drafter=False,
            image_row_bytes=0,
            end=self.end,
        )
        self.events: dict[int, list[Event]] = {}

    def add(self, request: Request) -> Sequence:
        events: list[Event] = []
        id_ = len(self.events)
        self.events[id_] = events
        sequence = new_sequence(id_, request, context=64, eos=frozenset(), deliver=events.append)
        self.scheduler.add(sequence)
        return sequence

    def end(self, sequence: Sequence, event: Finished | Failed) -> None:
        self.scheduler.remove(sequence)
        sequence.end(event)

    def run(self) -> None:
        while not self.scheduler.idle:
            self.runner.run()


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    """A step computes one slice, however short it is."""
    monkeypatch.setattr(step, "_IMAGE_SECONDS", 0)
    runtime = Recording(
        vocab_size=50,
        context=64,
        chunk=4,
        slots=3,
        batch=3,
        image_rows=ROWS,
        image_slices=SLICES,
    )
    return Steps(runtime)


def alone(request: Request) -> list[int]:
    """The tokens of a request that a runtime without slices reads, with nothing between."""
    (events,) = served(FakeRuntime(vocab_size=50, context=64, chunk=4, image_rows=ROWS), request)
    return tokens_in(events)


def test_a_token_of_the_others_comes_between_two_slices(steps: Steps) -> None:
    talking = request_of(3, max_tokens=50)
    steps.add(talking)
    steps.add(looking(1, 2))
    steps.run()
    did = steps.runtime.did
    assert did.count("slice") == 2 * SLICES
    assert "slice,slice" not in ",".join(did)
    assert tokens_in(steps.events[0]) == alone(talking)
    assert tokens_in(steps.events[1]) == alone(looking(1, 2))


def test_a_step_computes_slices_until_its_time_has_passed(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step, "_IMAGE_SECONDS", 1000)
    steps.add(request_of(3, max_tokens=50))
    steps.add(looking(1))
    steps.run()
    assert ",".join(["slice"] * SLICES) in ",".join(steps.runtime.did)


def test_a_step_begins_no_slice_that_would_end_too_late(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slices of 10 ms: 25 ms have room for two."""
    monkeypatch.setattr(step, "_IMAGE_SECONDS", 0.025)
    monkeypatch.setattr(time, "monotonic", lambda: steps.runtime.did.count("slice") / 100)
    steps.add(request_of(3, max_tokens=50))
    steps.add(looking(1))
    steps.run()
    did = ",".join(steps.runtime.did)
    assert "decode,slice,slice,decode" in did
    assert "slice,slice,slice" not in did


def test_a_client_that_leaves_during_an_image_ends_the_work(steps: Steps) -> None:
    left = steps.add(looking(1))
    talking = request_of(3, max_tokens=20)
    steps.add(talking)
    while "slice" not in steps.runtime.did:
        steps.runner.run()
    assert steps.runtime.open == 1
    steps.end(left, Finished("cancelled"))
    assert steps.runtime.open == 0
    again = steps.add(looking(1))
    steps.run()
    assert steps.runtime.did.count("slice") == 1 + SLICES
    assert tokens_in(steps.events[again.id]) == alone(looking(1))
    assert tokens_in(steps.events[1]) == alone(talking)


def test_prompts_take_turns_with_slices(steps: Steps) -> None:
    """A short question that comes later is answered before the image is read."""
    steps.add(looking(1, 2))
    while "slice" not in steps.runtime.did:
        steps.runner.run()
    asked = steps.add(request_of(3, 4, max_tokens=2))
    while not asked.ended:
        steps.runner.run()
    assert steps.runtime.did.count("slice") < SLICES
    steps.run()
    assert tokens_in(steps.events[0]) == alone(looking(1, 2))


def test_one_image_is_read_at_a_time(steps: Steps) -> None:
    """A prompt that begins with text is read up to its image meanwhile."""
    late = replace(looking(1), prompt=Prompt((3,) * 9, image(7), (5, 6)))
    requests = [looking(1, 2), looking(3, 4), late]
    for request in requests:
        steps.add(request)
    steps.run()
    assert steps.runtime.most_open == 1
    assert steps.runtime.did.count("slice") == 5 * SLICES
    for id_, request in enumerate(requests):
        assert tokens_in(steps.events[id_]) == alone(request)


def test_a_slice_that_fails_ends_its_sequence_alone(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_: object) -> Iterator[None]:
        yield None
        raise RuntimeError("a slice")

    monkeypatch.setattr(steps.runtime, "read_media", failing)
    talking = request_of(3, max_tokens=20)
    failed = steps.add(looking(1))
    steps.add(talking)
    steps.run()
    assert failed.reading is None
    assert "a slice" in str(steps.events[0][-1])
    assert tokens_in(steps.events[1]) == alone(talking)
