"""The self-test: compare what this machine computes with the bundle's golden values.

    quick   the first prompt, with the entry points that a request uses
    full    every prompt with every entry point, in batches of different prompts
    off     nothing

A value that lies between two integers is stored as either of them in a cache of i8, and so is an
activation that a product rounds to int8, so the logits of two machines differ by about as much as
the rounding costs. Rows of the first two layers differ less. Rows of the second layer depend
on what attention read from the caches of the first one. A state of the first layer depends on every
token, and on no activation that another layer rounded.

Golden logits that a program may approximate, because they are too low to be sampled, are not
compared: their errors are the approximation's, and grow with the logits.

It knows a runtime and golden values. It runs when a server starts, and in `hearth verify`.
"""

from __future__ import annotations

import itertools
import logging
import math
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from hearthd.runtime.checks.golden_replay import replayed, replayed_by_pairs, replayed_by_verifies
from hearthd.runtime.checks.row_difference import ROW_TOLERANCE, largest_difference, steps_between
from hearthd.runtime.media.pixels import golden_pixels
from hearthd.runtime.media.sound_features import golden_frames

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from hearthd.bundle import (
        Golden,
        GoldenImage,
        GoldenRow,
        GoldenSound,
        GoldenState,
        GoldenStep,
        LanguageManifest,
        SoundInput,
    )
    from hearthd.runtime.array_functions import Functions
    from hearthd.runtime.checks.golden_arrays import GoldenExample
    from hearthd.runtime.interface import Reader, Rows, Runtime

log = logging.getLogger(__name__)

Level: TypeAlias = Literal["quick", "full", "off"]

# The largest mean difference of the values of a state, of the largest value.
STATE_TOLERANCE = 1e-3
# Of the largest value of a row of an image: activations that are rounded to other integers.
IMAGE_TOLERANCE = 0.02
# Golden logits at most this much below the largest of their step are compared. It is less than
# LOGIT_MARGIN: a program compares with an approximation of the largest.
MARGIN = 10.0


class _Compared(NamedTuple):
    """A difference from golden values, and the largest one that passes."""

    where: str
    difference: float
    tolerance: float

    @property
    def share(self) -> float:
        """The difference as a share of the tolerance."""
        if self.tolerance:
            return self.difference / self.tolerance
        return math.inf if self.difference else 0.0


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The result of the self-test.

    level               what was tested
    files               the files whose sha256 was checked before the program was loaded
    largest_difference  largest difference of a logit or output from its golden value, or mean
                        difference of a head of a cached row; infinite for NaN
    tolerance           the largest difference that passes
    where               where the difference was the largest share of its tolerance
    steps               number of positions, or outputs of functions, that were compared
    seconds             duration of the comparison
    error               the error of the runtime that ended the test, or None
    """

    passed: bool
    level: Level
    files: tuple[str, ...]
    largest_difference: float
    tolerance: float
    where: str
    steps: int
    seconds: float
    error: str | None

    @property
    def message(self) -> str:
        """The verdict as a sentence."""
        if self.level == "off":
            return "the self-test is off"
        if self.passed:
            return f"the self-test passed: {self.steps} steps within {self.largest_difference:.2g}"
        advice = "" if self.error else "; bake the bundle on this machine, or report it"
        return f"the self-test failed: {self.failure}{advice}"

    @property
    def failure(self) -> str:
        """The reason why the test failed."""
        if self.error is not None:
            return f"the model cannot be run: {self.error}"
        if self.steps == 0:
            return "the bundle has no golden values, which `hearth verify` computes"
        return (
            f"a value differs by {self.largest_difference:.3g} at {self.where}, expected at most "
            f"{self.tolerance:.3g}"
        )

    def as_json(self) -> dict[str, Any]:
        """The fields in values of JSON, which has no infinity: None for that difference."""
        largest = self.largest_difference if math.isfinite(self.largest_difference) else None
        return {**asdict(self), "largest_difference": largest}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Verdict:
        """The verdict with these fields of `as_json`."""
        largest = fields["largest_difference"]
        largest = math.inf if largest is None else largest
        return cls(**{**fields, "files": tuple(fields["files"]), "largest_difference": largest})


@dataclass(frozen=True, kw_only=True)
class GoldenValues:
    """The golden values of a language model.

    tolerance    the largest difference of a logit that passes
    sound_input  how the golden sound becomes the frames that a tower reads
    """

    prompts: Sequence[Golden]
    tolerance: float
    rows: Sequence[GoldenRow] = ()
    states: Sequence[GoldenState] = ()
    image: GoldenImage | None = None
    sound: GoldenSound | None = None
    sound_input: SoundInput | None = None

    @classmethod
    def of(cls, manifest: LanguageManifest) -> GoldenValues:
        """All golden values of a bundle."""
        return cls(
            prompts=manifest.golden,
            tolerance=manifest.tolerance,
            rows=manifest.golden_rows,
            states=manifest.golden_states,
            image=manifest.golden_image,
            sound=manifest.golden_sound,
            sound_input=manifest.sound,
        )


def self_test_language(runtime: Runtime, golden: GoldenValues, *, level: Level = "full") -> Verdict:
    """Read every golden prompt, then its continuation token by token, and compare the logits.

    Also compare golden rows of the caches, golden states, and if the level is full the golden
    image and sound. Overwrites the caches of slot 0, or of all slots if the level is full.
    """
    test = _LanguageTest(runtime, golden)
    return _judge(test.full() if level == "full" else test.quick(), golden.tolerance, level)


def self_test_arrays(
    runtime: Functions,
    examples: Sequence[GoldenExample],
    tolerance: float,
    *,
    level: Level = "full",
) -> Verdict:
    """Run every function on its example and compare the outputs; `quick` is the same as `full`."""
    compared = (
        _Compared(index, difference, tolerance)
        for index, difference in _array_differences(runtime, examples)
    )
    return _judge(compared, tolerance, level)


def _judge(results: Iterator[_Compared], tolerance: float, level: Level) -> Verdict:
    """The verdict on differences, which are computed as they are consumed."""
    began = time.perf_counter()
    worst, steps = _Compared("", 0.0, tolerance), 0
    error = None
    try:
        for compared in results if level != "off" else ():
            if steps == 0 or compared.share > worst.share:
                worst = compared
            steps += 1
    except Exception as raised:
        log.exception("the self-test cannot run the model")
        error = f"{type(raised).__name__}: {raised}"
    return Verdict(
        passed=level == "off" or (error is None and steps > 0 and worst.share <= 1),
        level=level,
        files=(),
        largest_difference=worst.difference,
        tolerance=worst.tolerance,
        where=worst.where,
        steps=steps,
        seconds=time.perf_counter() - began,
        error=error,
    )


@dataclass(frozen=True)
class _LanguageTest:
    """A runtime and the golden values that it is compared with."""

    runtime: Runtime
    golden: GoldenValues

    def quick(self) -> Iterator[_Compared]:
        """Every step of the first prompt, its row and its states."""
        first = self.golden.prompts[:1]
        return self._read(replayed(self.runtime, first), range(len(first)))

    def full(self) -> Iterator[_Compared]:
        """As quick, for every prompt, with every variant of the runtime, every verify and an embed.

        The slots of a batch have different prompts, if there are enough, so that a row of a batch
        that reads another row is found.

        For an embed, the caches that it wrote are tested by a decode.
        """
        yield from self._image()
        yield from self._sound()
        runtime, count = self.runtime, len(self.golden.prompts)
        for name, variant in runtime.variants().items():
            for first in range(0, count, variant.batch):
                numbers = [(first + slot) % count for slot in range(variant.batch)]
                replay = replayed(variant, [self.golden.prompts[number] for number in numbers])
                yield from self._read(replay, numbers, f" ({name})")
        for number, case in enumerate(self.golden.prompts):
            *before, last = case.prompt_ids
            for start in range(0, len(before), runtime.chunk):
                runtime.embed(0, before[start : start + runtime.chunk], start)
            logits = runtime.decode([0], [last], [len(before)])
            yield self._step(number, 0, logits, " (embed)")
            yield from self._rows(number, [0], " (embed)")
            for tokens in runtime.verify_tokens:
                for index, row in enumerate(replayed_by_verifies(runtime, case, tokens)):
                    yield self._step(number, index, row[None], f" (verify {tokens})")
                yield from self._rows(number, [0], f" (verify {tokens})")
                yield from self._states(number, [0], f" (verify {tokens})")
        yield from self._pairs()
        yield from self._long_prefill()

    def _pairs(self) -> Iterator[_Compared]:
        """Prompts in two slots, with calls that verify the tokens of both."""
        count, size = len(self.golden.prompts), self.runtime.pair_tokens
        for first in range(0, count if size else 0, 2):
            numbers = [first, (first + 1) % count]
            replay = replayed_by_pairs(
                self.runtime, [self.golden.prompts[number] for number in numbers]
            )
            yield from self._read(replay, numbers, f" (verify {size} of two)")

    def _long_prefill(self) -> Iterator[_Compared]:
        """Several chunks at once, compared with one after the other: golden prompts are shorter."""
        runtime, longest = self.runtime, self.runtime.longest_prefill
        if longest == runtime.chunk:
            return
        repeated = itertools.cycle(self.golden.prompts[0].prompt_ids)
        *before, last = itertools.islice(repeated, longest + 1)
        for start in range(0, longest, runtime.chunk):
            runtime.prefill(0, before[start : start + runtime.chunk], start)
        expected = runtime.decode([0], [last], [longest])
        runtime.prefill(0, before, 0)
        difference = largest_difference(runtime.decode([0], [last], [longest]), expected)
        yield _Compared(f"{longest} tokens at once", difference, self.golden.tolerance)

    def _read(
        self, replay: Iterator[NDArray[np.float32]], numbers: Sequence[int], by: str = ""
    ) -> Iterator[_Compared]:
        """The logits of the prompts of these numbers, read together, one in each slot."""
        slots: dict[int, list[int]] = {}
        for slot, number in enumerate(numbers):
            slots.setdefault(number, []).append(slot)
        for index, logits in enumerate(replay):
            for number, places in slots.items():
                yield self._step(number, index, logits[places], by)
        for number, places in slots.items():
            yield from self._rows(number, places, by)
            yield from self._states(number, places, by)

    def _image(self) -> Iterator[_Compared]:
        """The first row of the golden image, by its largest difference, of each entry point."""
        for size in self.runtime.tower_sizes("image") if self.golden.image is not None else ():
            assert self.golden.image is not None, "sizes of no image"
            expected = np.asarray(self.golden.image.values)
            *_, rows = self.runtime.read_media(golden_pixels(self.golden.image.side), size)
            assert rows is not None, "the last step yields rows"
            yield _row_compared(f"golden image ({size} rows)", rows[0], expected)

    def _sound(self) -> Iterator[_Compared]:
        """The last row of the golden sound, by its largest difference, of each entry point."""
        if self.golden.sound is None or self.golden.sound_input is None:
            return
        for size in self.runtime.tower_sizes("sound"):
            frames = golden_frames(self.golden.sound.samples, self.golden.sound_input)
            *_, rows = self.runtime.read_media(frames, size)
            assert rows is not None, "the last step yields rows"
            expected = np.asarray(self.golden.sound.values)
            yield _row_compared(f"golden sound ({size} rows)", rows[-1], expected)

    def _step(self, number: int, index: int, logits: NDArray[np.float32], by: str) -> _Compared:
        difference = _logit_difference(self.golden.prompts[number].steps[index], logits)
        return _Compared(
            f"golden prompt {number}, step {index}{by}", difference, self.golden.tolerance
        )

    def _rows(self, number: int, slots: Sequence[int], by: str) -> Iterator[_Compared]:
        at = len(self.golden.prompts[number].prompt_ids) - 1
        for golden in self.golden.rows:
            if golden.prompt == number:
                saved = [self.runtime.save(slot, at, at + 1) for slot in slots]
                difference = max(steps_between(golden, row) for row in saved)
                where = f"golden prompt {number}, cached row{by}"
                tolerance = golden.tolerance or ROW_TOLERANCE[golden.dtype]
                yield _Compared(where, difference, tolerance)

    def _states(self, number: int, slots: Sequence[int], by: str) -> Iterator[_Compared]:
        """The states of the first layer, after the last token that was read."""
        case = self.golden.prompts[number]
        stop = len(case.prompt_ids) + len(case.steps) - 1
        for golden in self.golden.states:
            if golden.prompt == number:
                saved = [self.runtime.save_states(slot, stop) for slot in slots]
                difference = max(_state_difference(golden, states) for states in saved)
                yield _Compared(f"golden prompt {number}, state{by}", difference, STATE_TOLERANCE)


def largest_logit_difference(reader: Reader, case: Golden) -> float:
    """The largest difference of a golden logit that slot 0 of a reader computes."""
    pairs = zip(case.steps, replayed(reader, [case]), strict=True)
    return max(_logit_difference(step, logits) for step, logits in pairs)


def _logit_difference(step: GoldenStep, logits: NDArray[np.float32]) -> float:
    """The largest difference of a golden logit that is high enough to be compared, f32 (B, V)."""
    expected = np.asarray(step.logits)
    exact = expected >= expected.max() - MARGIN
    ids = np.asarray(step.token_ids)[exact]
    return largest_difference(logits[:, ids], expected[exact])


def _state_difference(golden: GoldenState, saved: Rows) -> float:
    """The mean difference of the values of a state, as a share of the largest one."""
    expected = np.array(golden.values)
    size = 4 * len(golden.values)
    values = saved[golden.offset : golden.offset + size].view(np.float32).astype(np.float64)
    mean = np.abs(values - expected).mean(keepdims=True)
    return largest_difference(mean / (np.abs(expected).max() or 1), np.zeros(1))


def _array_differences(
    runtime: Functions, examples: Sequence[GoldenExample]
) -> Iterator[tuple[str, float]]:
    """The place of every output and the largest difference of its values."""
    for example in examples:
        outputs = runtime.run(example.function, example.inputs)
        for name, expected in example.outputs.items():
            yield f"{example.function}: {name}", largest_difference(outputs[name], expected)


def _row_compared(step: str, row: NDArray[np.float32], expected: NDArray[Any]) -> _Compared:
    """A row of embeddings, by its largest difference in units of its largest value."""
    difference = largest_difference(row, expected) / float(np.abs(expected).max() or 1)
    return _Compared(step, difference, IMAGE_TOLERANCE)
