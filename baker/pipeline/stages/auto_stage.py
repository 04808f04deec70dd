"""The stage of a bake that chooses how weights are stored: `--precision auto`.

The stage first tries whole precisions, the fastest first (baker/precision/auto_precision.py), and
then the chosen one with activations of int8, half the products of integers. If it chooses `native`
or `int8-g32`, it then tries fewer bits for each part of the layers. A part is a matrix, or the
matrices that read the same inputs and are stored as one.

The stage rounds all layers to 4 bits by the calibration text. This gives the expected error of each
part; the measured KL divergence of that model gives the unit of these errors. Then it assigns the
fewest bits that are expected to be within the limit, rounds and measures the result, and corrects
the unit.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING

from hearthd.baker.atomic_folder import BakeError
from hearthd.baker.compiler.kernel_objects import instructions_for
from hearthd.baker.pipeline.memory_plan import too_large
from hearthd.baker.pipeline.shared_stages import weights_bytes
from hearthd.baker.pipeline.stages.calibration_stage import ROUNDED
from hearthd.baker.precision.auto_precision import AUTO, attempt, by_speed, choose, not_measured
from hearthd.baker.precision.bit_assignment import Choice, fewest_bytes, least_error
from hearthd.baker.precision.kl_from_f32 import Meter, beginnings
from hearthd.bundle import Activations, TriedPrecision, megabytes
from hearthd.models.dsl.storage import STORAGES
from hearthd.models.dsl.types import TypeRuleError
from hearthd.models.precision import PRECISIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hearthd.baker.calibration.calibrated_layers import CalibratedLayers
    from hearthd.baker.pipeline.language_plan import AutoLimits, LanguagePlan
    from hearthd.baker.pipeline.stages.calibration_stage import Calibration
    from hearthd.baker.precision.kl_from_f32 import Divergence
    from hearthd.baker.progress import Progress
    from hearthd.models.program import Program

_MIXED = "mixed"
_MIXABLE = ("native", "int8-g32")  # the precisions whose layers may be stored in fewer bits
_FEWEST, _LARGER = 4, (5,)
_INT8: Activations = "int8"
# The expected divergence of an assignment, as a fraction of the limit.
_AIM = 0.9
_MAX_CORRECTIONS = 3


@dataclass(frozen=True)
class Chosen:
    """What was tried, the chosen precision last; and the storages that parts were assigned."""

    tried: tuple[TriedPrecision, ...] = ()
    storages: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class AutoStage:
    """The choice for one plan. The instructions of its first target decide the order."""

    plan: LanguagePlan
    limits: AutoLimits
    calibration: Calibration
    progress: Progress

    def choose(self) -> Chosen:
        """Choose a precision within the limits: of divergence, or of bytes.

        Raises BakeError if nothing is within them, a WeightsError or NotFiniteError.
        """
        names = by_speed(instructions_for(self.plan.destination.targets[0]))
        if self.limits.max_bytes is not None:
            return self._least_divergence(names, self.limits.max_bytes)
        limit = self.limits.max_kl
        tried = choose(names, max_kl=limit, obstacle=self._obstacle, divergence=self._divergence_of)
        tried = self._fewest_activation_bits(tried, limit)
        return (
            self._fewest_bytes(tried, limit) if tried[-1].precision in _MIXABLE else Chosen(tried)
        )

    def _obstacle(self, precision: str) -> str | None:
        """Why the weights cannot be stored so, if so."""
        chosen = PRECISIONS[precision]
        if self.limits.activations not in (None, *chosen.activations):
            return f"rounds no activations to {self.limits.activations}"
        if chosen.native and not self.plan.model.keeps_integers(precision):
            return f"stores these weights as {chosen.storage.name}"
        try:
            program = self._program(precision)
        except TypeRuleError as error:
            return f"does not support this model: {error}"
        plan = self.plan
        return too_large(program, plan.program.context, plan.slots, plan.max_memory)

    @cached_property
    def _program(self) -> Callable[[str], Program]:
        """The program of a precision, traced once."""
        model, options = self.plan.model, self.plan.program
        return cache(lambda precision: model.program(model.stored_in(options, precision)))

    def _divergence_of(self, precision: str, activations: Activations | None = None) -> Divergence:
        activations = activations or self.plan.program.activations
        with self.progress.stage(_measuring(precision, activations)):
            return self._meter.measure(precision, activations)

    @cached_property
    def _meter(self) -> Meter:  # lazy: computing F32's predictions takes long
        model = self.plan.model
        texts = beginnings(model.tokenizer)
        return Meter(model.source, model.architecture, model.config, texts)

    # --- the least divergence within a number of bytes

    def _least_divergence(self, names: Sequence[str], limit: int) -> Chosen:
        """The precision within the limit with the smallest divergence; a mix if none is within."""
        tried = []
        for name in names:
            refused = self._obstacle(name) or self._too_many_bytes(name, limit)
            tried.append(
                not_measured(name, refused) if refused else attempt(name, self._divergence_of(name))
            )
        fitting = [candidate for candidate in tried if candidate.kl is not None]
        if fitting:
            best = min(fitting, key=lambda candidate: candidate.kl or 0.0)
            others = (candidate for candidate in tried if candidate is not best)
            larger = f"more than {best.precision} has"
            return Chosen(
                (
                    *(
                        replace(candidate, refused=candidate.refused or larger)
                        for candidate in others
                    ),
                    best,
                )
            )
        possible = [name for name in names if name in _MIXABLE and not self._obstacle(name)]
        if not possible:
            raise BakeError(
                f"--precision {AUTO}: " + "; ".join(candidate.text for candidate in tried)
            )
        base = possible[0]
        parts = self._parts(base)
        rest = self._bytes(base) - sum(choices[-1].size for choices in parts)
        mix = least_error(parts, limit - rest)
        if (size := rest + sum(choice.size for choice in mix)) > limit:
            raise BakeError(
                f"--max-bytes: the weights take at least {megabytes(size)} MB, "
                f"and {megabytes(limit)} MB were given"
            )
        assigned = self._assigned(base, mix)
        measured = self._measured(assigned, self.plan.program.activations)
        return Chosen((*tried, attempt(_MIXED, measured)), assigned)

    def _bytes(self, precision: str) -> int:
        return weights_bytes(self._program(precision).weights)

    def _too_many_bytes(self, precision: str, limit: int) -> str | None:
        size = self._bytes(precision)
        if size <= limit:
            return None
        return f"takes {megabytes(size)} MB, more than --max-bytes {megabytes(limit)} MB"

    # --- the fewest bits within a divergence

    def _fewest_activation_bits(
        self, tried: tuple[TriedPrecision, ...], limit: float
    ) -> tuple[TriedPrecision, ...]:
        """Measure the chosen precision with int8 activations, and choose these within the limit.

        Returns all attempts, the chosen one last.
        """
        *others, exact = tried
        if self.limits.activations or _INT8 not in PRECISIONS[exact.precision].activations:
            return tried
        measured = self._divergence_of(exact.precision, _INT8)
        rounded = attempt(exact.precision, measured, limit)
        if rounded.refused:
            return (*others, rounded, exact)
        slower = replace(exact, refused="slower than with activations of int8")
        return (*others, slower, rounded)

    def _fewest_bytes(self, tried: tuple[TriedPrecision, ...], limit: float) -> Chosen:
        """A mix that is smaller than the last of what was tried, or that one if none is."""
        *others, base = tried
        assert base.kl is not None, "a precision that was chosen"
        parts = self._parts(base.precision)
        mix, mixes = [choices[0] for choices in parts], list[TriedPrecision]()
        for _ in range(1 + _MAX_CORRECTIONS):
            error = sum(choice.error for choice in mix)
            if not error:  # this is the whole precision
                break
            assigned = self._assigned(base.precision, mix)
            measured = self._measured(assigned, base.activations)
            mixes.append(attempt(_MIXED, measured, limit))
            if mixes[-1].refused is None:
                larger = replace(base, refused=f"larger than {_MIXED}")
                return Chosen((*others, larger, *mixes), assigned)
            allowed = _AIM * (limit - base.kl) / (measured.mean - base.kl) * error
            mix = fewest_bytes(parts, allowed)
        return Chosen((*others, *mixes, base))

    # --- parts

    def _parts(self, base: str) -> list[list[Choice]]:
        """The choices of each part of the layers, the largest as in the precision `base`.

        No part for a model whose matrices cannot have 4 bits, nor for matrices of experts, which
        are rounded without a text.
        """
        smallest = f"int{_FEWEST}-g32"
        try:
            program = self._program(smallest)
        except TypeRuleError:
            return []
        native = self.plan.model.storages(base)
        stacks = [
            weight.sources
            for weight in program.weights
            if weight.storage.name == smallest
            and all(len(shape) == 2 for shape in weight.sources.values())
        ]
        first = self._assigned(base, [_choice(stack, native, _FEWEST, {}) for stack in stacks])
        errors = self._rounded(first).divergences
        return [
            [
                *(_choice(stack, native, bits, errors) for bits in (_FEWEST, *_LARGER)),
                _whole_choice(stack, native),
            ]
            for stack in stacks
            if all(name in errors or _bits(native.get(name, "")) <= _FEWEST for name in stack)
        ]

    def _assigned(self, base: str, mix: Sequence[Choice]) -> dict[str, str]:
        """The storages of all parameters that are not stored as the precision says."""
        assigned = self.plan.model.storages(base)
        for choice in mix:
            assigned |= choice.storages
        usual = PRECISIONS[_MIXED].storage.name
        return {name: storage for name, storage in assigned.items() if storage != usual}

    def _rounded(self, assigned: Mapping[str, str]) -> CalibratedLayers:
        kept = self.plan.model.storages("native")
        return self.calibration.rounded(
            {
                name: STORAGES[storage]
                for name, storage in assigned.items()
                if STORAGES[storage] in ROUNDED and kept.get(name) != storage
            }
        )

    def _measured(self, assigned: Mapping[str, str], activations: Activations) -> Divergence:
        rounded = self._rounded(assigned)
        with self.progress.stage(_measuring(_MIXED, activations)):
            return self._meter.measure(_MIXED, activations, assigned, rounded.arrays)


def _measuring(precision: str, activations: Activations) -> str:
    """The name of a stage."""
    rounded = " with activations of int8" if activations == _INT8 else ""
    return f"measure the KL divergence of {precision}{rounded}"


def _choice(
    stack: Mapping[str, tuple[int, ...]],
    native: Mapping[str, str],
    bits: int,
    errors: Mapping[str, float],
) -> Choice:
    """A part in `bits` bits. A matrix that the file stores in at most `bits` keeps its integers.

    `errors` are for _FEWEST bits. Each further bit halves the rounding error.
    """
    chosen, error = {}, 0.0
    for name in stack:
        if _bits(native.get(name, "")) <= bits:
            chosen[name] = native[name]
        else:
            chosen[name] = f"int{bits}-g32"
            error += errors.get(name, 0.0) / 4 ** (bits - _FEWEST)
    return Choice(storages=chosen, size=_size(stack, chosen), error=error)


def _whole_choice(stack: Mapping[str, tuple[int, ...]], native: Mapping[str, str]) -> Choice:
    """The matrices of a part as the whole precision has them."""
    usual = PRECISIONS[_MIXED].storage.name
    chosen = {name: native.get(name, usual) for name in stack}
    return Choice(storages=chosen, size=_size(stack, chosen), error=0.0)


def _bits(storage: str) -> int:
    """The bits of the integers of a storage with fewer than 8; 8 for other storages."""
    matrix_format = STORAGES[storage].format if storage else None
    return min(matrix_format.bits, 8) if matrix_format else 8


def _size(stack: Mapping[str, tuple[int, ...]], chosen: Mapping[str, str]) -> int:
    """The bytes of matrices that are stored so."""
    return sum(
        array.nbytes
        for name, (rows, columns) in stack.items()
        for array in STORAGES[chosen[name]].arrays(rows, columns).values()
    )
