"""Tuning a drafter: the batches, the loss against NumPy, and a run whose drafter a bake reads."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
from rich.console import Console

from hearthd.baker.adapters.drafted_weights import model_drafter
from hearthd.baker.tuning import tuning
from hearthd.baker.tuning.batches import Batch, Bucket
from hearthd.baker.tuning.checkpoint import read_checkpoint
from hearthd.baker.tuning.drafter_task import MAX_HEAD, DrafterTask, frequent_tokens
from hearthd.baker.tuning.examples import Example
from hearthd.baker.tuning.tuning_report import TuningReport
from hearthd.models.decoder.drafting.drafter import (
    DEPTH,
    Drafter,
    drafter_loss_graph,
    frozen_graph,
    states_graph,
)
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.families.gemma3 import ARCHITECTURE
from tests.baker.tuning.tiny_model import CONFIG, request, write_lines, write_model
from tests.conftest import Silent

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Array = NDArray[Any]

SHAPE = Bucket(sequences=2, length=8, rows=8)
EXAMPLES = [
    Example(ids=(9, 3, 5, 4, 3, 200, 5), learned=(3, 4, 5, 6)),
    Example(ids=(9, 7, 3, 3), learned=(1, 2, 3)),
]
BATCH = Batch(bucket=SHAPE, examples=(0, 1))
HEAD = np.array([3, 4, 5, 7], np.int32)


def task() -> DrafterTask:
    """A task with random states of the examples."""
    rng = np.random.default_rng(0)
    states = {
        example: rng.normal(size=(example.length, CONFIG.hidden)).astype(np.float32)
        for example in EXAMPLES
    }
    return DrafterTask(architecture=ARCHITECTURE, config=CONFIG, head_tokens=HEAD, states=states)


def test_each_learned_token_is_drafted_from_the_state_before_the_token_before_it() -> None:
    tuned = task()
    states, rows, following, head, weights = tuned.arrays(EXAMPLES, BATCH, total=7)
    first, second = states.reshape(2, SHAPE.length, CONFIG.hidden)
    assert np.array_equal(first[:6], tuned.states[EXAMPLES[0]])
    assert np.array_equal(second[:3], tuned.states[EXAMPLES[1]])
    assert head is HEAD
    # (the token before the state's, by the row; the tokens that follow; how many are drafted)
    drafts = [
        (1, [5, 4, 3], 3),
        (2, [4, 3, 200], 3),
        (3, [3, 200, 0], 2),
        (4, [200, 0, 0], 1),
        (8, [7, 3, 0], 2),  # not token 1, before which there are no two tokens
        (9, [3, 0, 0], 1),
    ]
    for at, (row, follow, count) in enumerate(drafts):
        assert rows[at] == row
        assert following.reshape(DEPTH, -1)[:, at].tolist() == follow
        expected = [1 / 7] * count + [0] * (DEPTH - count)
        assert weights.reshape(DEPTH, -1)[:, at].tolist() == pytest.approx(expected)
    assert not weights.reshape(DEPTH, -1)[:, len(drafts) :].any()


def test_frequent_tokens_are_those_that_are_learned_most_often() -> None:
    examples = [Example(ids=(0, *[40] * 3, 30), learned=(1, 2, 3, 4))]
    assert frequent_tokens(examples, 48).tolist() == list(range(48))
    tokens = frequent_tokens(examples, 41)  # a multiple of 16
    assert tokens.tolist() == [*range(30), 30, 40]


def in_numpy(arrays: tuple[Array, ...], weights: dict[str, Array]) -> float:
    """The loss by the formulas."""
    states, rows, following, head, shares = arrays
    table = weights["embed_tokens.weight"].astype(np.float64)

    def norm(x: Array, name: str) -> Array:
        scale = np.sqrt((x**2).mean(axis=1, keepdims=True) + 1e-6)
        scaled: Array = x / scale * weights[f"drafter.layer.{name}.weight"]
        return scaled

    def linear(x: Array, name: str) -> Array:
        product: Array = x @ weights[f"drafter.layer.{name}.weight"].T
        return product

    def log_softmax(states: Array) -> Array:
        logits = states @ table[head].T
        predicted: Array = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        return predicted

    loss, state = 0.0, states[rows].astype(np.float64)
    for depth in range(DEPTH):
        part = slice(depth * len(rows), (depth + 1) * len(rows))
        embedded = table[following[part]] * np.sqrt(CONFIG.hidden)
        x = np.concatenate([norm(state, "state_norm"), norm(embedded, "token_norm")], axis=1)
        gate = linear(x, "gate_proj")
        mixed = linear(gate / (1 + np.exp(-gate)) * linear(x, "up_proj"), "down_proj")
        state = linear(x, "proj") + mixed
        for row, share, predicted in zip(rows, shares[part], log_softmax(state), strict=True):
            if share:
                known = log_softmax(states[row + depth + 1][None].astype(np.float64))[0]
                divergence = (np.exp(known) * (known - predicted)).sum()
                loss += 0.8**depth * float(share * divergence)
    return loss


def test_the_loss_is_that_of_numpy() -> None:
    rng = np.random.default_rng(0)
    model, drafter = ARCHITECTURE.model(CONFIG), Drafter(CONFIG.hidden, len(HEAD))
    parameters = {**model.parameters(), **drafter.layer_parameters()}
    weights = {
        name: (rng.normal(size=x.shape) / np.sqrt(x.shape[-1])).astype(np.float32)
        for name, x in parameters.items()
    }
    arrays = task().arrays(EXAMPLES, BATCH, total=7)
    learned = [weights[name] for name in drafter.layer_parameters()]
    graph = drafter_loss_graph(frozen_graph(model, SHAPE, head_tokens=len(HEAD)), drafter)
    (loss,) = evaluate(graph, [*arrays, *learned], weights)
    assert float(loss) == pytest.approx(in_numpy(arrays, weights), rel=1e-4)


def test_states_are_those_of_each_example(tmp_path: Path) -> None:
    """Each example is read in a batch of its length, and has the states of its tokens."""
    rng = np.random.default_rng(0)
    model = ARCHITECTURE.model(CONFIG)
    weights = {
        name: (rng.normal(size=x.shape) / np.sqrt(x.shape[-1])).astype(np.float32)
        for name, x in model.parameters().items()
    }
    states = states_graph(model, SHAPE)

    class Evaluated:
        def states(self, shape: Bucket, tokens: Array, hidden: int) -> Array:
            (computed,) = evaluate(states, [tokens], weights)
            return np.asarray(computed).reshape(shape.sequences, shape.length, hidden)

    tuned = replace(task(), states={})
    tuned.read(cast("Any", Evaluated()), EXAMPLES, [SHAPE], tmp_path)
    assert not list(tmp_path.iterdir())
    alone = Bucket(sequences=1, length=SHAPE.length, rows=SHAPE.rows)
    for example in EXAMPLES:
        tokens = np.array([*example.ids[:-1], *[0] * (SHAPE.length - example.length)], np.int32)
        (computed,) = evaluate(states_graph(model, alone), [tokens], weights)
        expected = np.asarray(computed)[: example.length]
        assert tuned.states[example] == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.nightly
def test_a_run_lowers_the_loss_and_a_bake_reads_its_drafter(tmp_path: Path) -> None:
    write_model(tmp_path / "model")
    lines = [{"prompt": "count: ", "completion": "abcabcabc"[at : at + 6]} for at in range(3)]
    write_lines(tmp_path / "data.jsonl", lines)
    options = {"drafter": True, "steps": 30, "learning_rate": 0.02}
    run = request(tmp_path, "drafter", **options)
    console = Console(file=io.StringIO(), width=200)
    tuning.tune(run, Silent(), TuningReport(console, run.out))
    checkpoint = read_checkpoint(run.out, {})
    assert checkpoint is not None
    losses = checkpoint.history.losses
    assert losses[-1] < 0.1 * losses[0]
    drafter = model_drafter(run.out, ARCHITECTURE, CONFIG)
    assert len(drafter.head_tokens) == CONFIG.vocab_size // 16 * 16


@pytest.mark.nightly
def test_a_head_of_4096_tokens_fits_on_the_stacks_of_threads(tmp_path: Path) -> None:
    """Kernels that keep eight rows do not: the compiler refuses them, or the process crashes."""
    write_model(tmp_path / "model", replace(CONFIG, vocab_size=MAX_HEAD))
    write_lines(tmp_path / "data.jsonl", [{"prompt": "count: ", "completion": "abc" * 30}])
    run = request(tmp_path, "drafter", drafter=True, steps=2)
    tuning.tune(run, Silent(), TuningReport(Console(file=io.StringIO(), width=200), run.out))
    checkpoint = read_checkpoint(run.out, {})
    assert checkpoint is not None
    assert checkpoint.history.step == 2
