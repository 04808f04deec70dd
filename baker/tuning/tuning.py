"""Tune an adapter or a drafter: read the examples, compile, run the steps, and write it.

The folder of a run has the adapter in PEFT's format or the file of the drafter, with
checkpoint.safetensors and loss.svg. A run that was interrupted continues from its checkpoint, with
the same bits as without the interruption.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from hearthd.baker.pipeline.recipe import open_named, recipes
from hearthd.baker.pipeline.weights_config import check_architecture, model_config
from hearthd.baker.temporary_folder import temporary_folder
from hearthd.baker.tokenizer.tokenizer_files import answer_tokenizer, chat_template, special_tokens
from hearthd.baker.tuning import batches
from hearthd.baker.tuning.bundle_weights import BundleWeights
from hearthd.baker.tuning.checkpoint import (
    Checkpoint,
    History,
    read_checkpoint,
    require_tensors,
    write_checkpoint,
)
from hearthd.baker.tuning.drafter_task import DrafterTask, frequent_tokens
from hearthd.baker.tuning.examples import ExampleReader
from hearthd.baker.tuning.lora_task import LoraTask
from hearthd.baker.tuning.training_program import Trainer, TrainingOptions, compile_program
from hearthd.baker.tuning.tune_request import TuneError
from hearthd.bundle import MANIFEST, megabytes, record_file
from hearthd.models.config import MAX_SIZE
from hearthd.models.dsl.optimizers import Adam, WarmupCosine
from hearthd.models.lora.training import Lora
from hearthd.runtime.system.free_memory import free_memory
from hearthd.runtime.system.operating_system import lock, open_folder
from hearthd.text.templates.chat_template import ChatTemplate
from hearthd.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.baker.progress import Progress
    from hearthd.baker.tuning.batches import Batch, Bucket
    from hearthd.baker.tuning.examples import Example
    from hearthd.baker.tuning.training_program import TrainingProgram, TrainingTask
    from hearthd.baker.tuning.tune_request import TuneRequest
    from hearthd.baker.tuning.tuning_report import TuningReport
    from hearthd.baker.weights.source import WeightSource
    from hearthd.models.config import ModelConfig
    from hearthd.models.decoder.architecture import Architecture

    Array = NDArray[Any]

_PRECISION = "bf16"
# Tells the random numbers of dropout from other random numbers.
_DROPOUT = (1 << 31) + 1


# Fields of a request that may differ when a run goes on: the others are recorded.
_FREE = {"data", "out", "weights", "save_every", "max_memory"}


@dataclass(frozen=True, kw_only=True)
class _Run:
    """The model, the examples and the shapes that every part of a run uses."""

    request: TuneRequest
    source: WeightSource
    architecture: Architecture[Any]
    config: ModelConfig
    task: TrainingTask
    learned: Sequence[Example]
    held_out: Sequence[Example]
    shapes: Sequence[Bucket]
    steps: int
    validate_every: int


def tune(request: TuneRequest, progress: Progress, report: TuningReport) -> Path:
    """Tune an adapter or a drafter; returns its folder.

    Raises TuneError, BadExample, CheckpointError, DivergedError, and what reading weights and
    compiling raises.
    """
    with progress.stage("read the examples"):
        run = _prepared(request)
        program = _traced(run)
        if request.max_memory is not None and program.memory > request.max_memory:
            program = _traced(run, recompute=True)
    free_memory()
    report.begin(run.steps, len(run.learned), len(run.held_out), run.shapes, program)
    if request.max_memory is not None and program.memory > request.max_memory:
        raise TuneError(
            f"--max-memory: tuning needs about {megabytes(program.memory)} MB, and "
            f"{megabytes(request.max_memory)} MB were given; lower --batch (and raise "
            "--accumulate), or --max-length"
        )
    with _locked(request.out) as folder:
        with progress.stage("compute the digests of the weights"):
            options = {**_recorded(run), "recompute": program.recomputes}
        checkpoint = read_checkpoint(request.out, options)
        if checkpoint is not None:
            require_tensors(request.out, checkpoint, program.adapters, program.state)
        elif (found := request.out / run.task.output).exists():
            raise TuneError(
                f"--out: {found} exists, and its run has no checkpoint there; choose another folder"
            )
        compile_program(program, run.source, run.architecture, run.config, folder, progress)
        run.source.require_unchanged()
        checkpoint = checkpoint or Checkpoint(
            adapters=run.task.first(program, request.seed), best={}, state={}, history=History()
        )
        trainer = Trainer(program, folder, {**checkpoint.adapters, **checkpoint.state})
        run.task.read(trainer, [*run.learned, *run.held_out], run.shapes, folder)
        checkpoint = _trained(run, trainer, checkpoint, options, report)
    run.task.write(request.out, checkpoint.best or checkpoint.adapters)
    return request.out


def _prepared(request: TuneRequest) -> _Run:
    """Open the weights and read the examples."""
    source, architecture, config = _opened(request)
    config = config.for_context(request.max_length)
    examples = _reader(request, source).read(request.data)
    order = np.random.default_rng([request.seed, 1 << 31]).permutation(len(examples)).tolist()
    held_out = round(request.validation * len(examples))
    if held_out >= len(examples):
        raise TuneError(
            f"--validation {request.validation}: {len(examples)} examples leave none to learn"
        )
    if request.patience is not None and not held_out:
        raise TuneError("--patience needs --validation, the share of examples to measure by")
    learned = [examples[i] for i in sorted(order[held_out:])]
    shapes = batches.buckets(examples, min(request.batch, len(examples)))
    epoch = batches.steps_per_epoch(learned, shapes, accumulate=request.accumulate)
    steps = request.steps or request.epochs * epoch
    if steps > MAX_SIZE:
        raise TuneError(
            f"got {steps} steps, expected at most {MAX_SIZE}; lower --steps or --epochs"
        )
    return _Run(
        request=request,
        source=source,
        architecture=architecture,
        config=config,
        task=_task(request, architecture, config, learned),
        learned=learned,
        held_out=[examples[i] for i in sorted(order[:held_out])],
        shapes=shapes,
        steps=steps,
        validate_every=request.validate_every or min(epoch, steps),
    )


def _task(
    request: TuneRequest,
    architecture: Architecture[Any],
    config: ModelConfig,
    learned: Sequence[Example],
) -> TrainingTask:
    if request.drafter:
        head_tokens = frequent_tokens(learned, config.vocab_size)
        return DrafterTask(architecture=architecture, config=config, head_tokens=head_tokens)
    shapes = (weight.shape for weight in architecture.model(config).parameters().values())
    largest = max(max(shape) for shape in shapes)
    if request.rank > largest:
        raise TuneError(
            f"--rank: got {request.rank}, expected at most {largest}, the largest size of a matrix "
            "of this model"
        )
    lora = Lora(
        rank=request.rank, alpha=request.alpha, projections=request.targets, dropout=request.dropout
    )
    base = str(request.weights or request.model)
    return LoraTask(architecture=architecture, config=config, lora=lora, base=base)


def _opened(request: TuneRequest) -> tuple[WeightSource, Architecture[Any], ModelConfig]:
    architecture: Architecture[Any] = recipes()[request.model][0].architecture
    if request.weights is not None and (request.weights / MANIFEST).is_file():
        bundle = BundleWeights(request.weights)
        if bundle.architecture is not architecture:
            raise TuneError(
                f"--weights: {request.weights} is a bundle of {bundle.architecture.name}, expected "
                f"one of {architecture.name}"
            )
        return bundle, architecture, bundle.config
    source = open_named(request.model, request.weights)
    check_architecture(request.model, source)
    return source, architecture, model_config(source, architecture)


def _reader(request: TuneRequest, source: WeightSource) -> ExampleReader:
    special = (
        source.manifest.special_tokens
        if isinstance(source, BundleWeights)
        else special_tokens(source)
    )
    tokenizer = Tokenizer(answer_tokenizer(source), bos=special.bos)
    template, names = chat_template(source), {"eos": special.eos[0], "bos": special.template_bos}
    return ExampleReader(
        tokenizer,
        None if template is None else ChatTemplate(template, tokenizer, **names),
        special.eos,
        max_length=request.max_length,
        truncate=request.truncate,
    )


def _traced(run: _Run, *, recompute: bool = False) -> TrainingProgram:
    request, steps = run.request, run.steps
    warmup = steps // 10 if request.warmup is None else request.warmup
    optimizer = Adam(
        rate=WarmupCosine(peak=request.learning_rate, warmup=warmup, total=steps),
        decay=request.decay,
        max_norm=request.max_norm,
    )
    return run.task.traced(
        TrainingOptions(
            optimizer=optimizer,
            shapes=run.shapes,
            precision=_PRECISION,
            validated=bool(run.held_out),
            recompute=recompute,
        )
    )


@contextmanager
def _locked(out: Path) -> Iterator[Path]:
    """A folder for the program in `out`, which no other run uses; raises TuneError."""
    out.mkdir(parents=True, exist_ok=True)
    held = open_folder(out)
    try:
        try:
            lock(held)
        except BlockingIOError as error:
            raise TuneError(f"--out: another run writes to {out}") from error
        with temporary_folder(".hearth.", out) as folder:
            yield folder
    except OSError as error:  # one of a write, such as on a full disk, names no file
        error.filename = error.filename or str(out)
        raise
    finally:
        os.close(held)


def _recorded(run: _Run) -> dict[str, Any]:
    """The settings that decide the result of a run, as its checkpoint records them."""
    options = dataclasses.asdict(run.request)
    data = hashlib.sha256(run.request.data.read_bytes()).hexdigest()
    return {
        **{name: _plain(value) for name, value in options.items() if name not in _FREE},
        "steps": run.steps,
        "data": data,
        "weights": [record_file(path).sha256 for path in run.source.files()],
    }


def _plain(value: Any) -> Any:
    """A value as JSON gives it back."""
    return list(value) if isinstance(value, tuple) else value


def _trained(
    run: _Run,
    trainer: Trainer,
    checkpoint: Checkpoint,
    options: dict[str, Any],
    report: TuningReport,
) -> Checkpoint:
    """Run the steps that are missing; returns the last checkpoint."""
    history, best = checkpoint.history, checkpoint.best
    if history.step:
        report.resumed(history)
    report.started()

    def validated() -> bool:
        """Validate; returns whether the run should end."""
        nonlocal best
        loss = _validation_loss(run, trainer)
        if history.best is None or loss < history.best:
            best = trainer.adapters()
        history.validation.append((history.step, loss))
        report.validated(history.step, loss)
        patience = run.request.patience
        return patience is not None and history.validations_since_best() >= patience

    def save() -> Checkpoint:
        checkpoint = Checkpoint(
            adapters=trainer.adapters(), best=best, state=trainer.state(), history=history
        )
        write_checkpoint(run.request.out, checkpoint, options)
        report.draw(history)
        return checkpoint

    if run.held_out and not history.validation:
        validated()
    order = batches.steps(
        run.learned, run.shapes, accumulate=run.request.accumulate, seed=run.request.seed
    )
    patience = run.request.patience
    stopped = patience is not None and history.validations_since_best() >= patience
    for step in islice(order, history.step, run.steps):
        if stopped:
            break
        _step(run, trainer, step, history)
        report.stepped(history)
        if run.held_out and history.step % run.validate_every == 0:
            stopped = validated()
        if history.step % run.request.save_every == 0:
            save()
    report.finished(history)
    return save()


def _step(run: _Run, trainer: Trainer, step: Sequence[Batch], history: History) -> None:
    total = batches.learned_tokens(run.learned, step)
    loss = 0.0
    for number, batch in enumerate(step):
        arrays = run.task.arrays(run.learned, batch, total=total)
        if run.request.dropout:
            # Of the step alone, so that a run that continues drops the same elements.
            rng = np.random.default_rng([run.request.seed, _DROPOUT, history.step, number])
            arrays = (*arrays, rng.integers(2**31, size=(), dtype=np.int32))
        loss += trainer.add_gradients(batch.bucket, arrays)
        history.tokens += sum(run.learned[i].length for i in batch.examples)
    trainer.update()
    history.losses.append(loss)


def _validation_loss(run: _Run, trainer: Trainer) -> float:
    """The mean loss of the learned tokens of all examples that are held out."""
    epoch = batches.epoch(run.held_out, run.shapes, seed=0, number=0)
    total = batches.learned_tokens(run.held_out, epoch)
    return sum(
        trainer.loss(batch.bucket, run.task.arrays(run.held_out, batch, total=total))
        for batch in epoch
    )
