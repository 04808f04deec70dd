"""Tuning a drafter: the batches, the loss against NumPy, and a run whose drafter a bake reads."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from rich.console import Console

from hearthd.baker.adapters.drafted_weights import model_drafter
from hearthd.baker.tuning import tuning
from hearthd.baker.tuning.batches import Batch, Bucket
from hearthd.baker.tuning.checkpoint import read_checkpoint
from hearthd.baker.tuning.drafter_task import DrafterTask, frequent_tokens
from hearthd.baker.tuning.examples import Example
from hearthd.baker.tuning.tuning_report import TuningReport
from hearthd.models.decoder.drafter import DEPTH, Drafter, drafter_loss_graph, frozen_graph
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
HEAD = np.array([3, 4, 5, 7], np.int32)


def task() -> DrafterTask:
    return DrafterTask(architecture=ARCHITECTURE, config=CONFIG, head_tokens=HEAD)


def test_each_learned_token_is_drafted_from_the_state_before_the_token_before_it() -> None:
    batch = Batch(bucket=SHAPE, examples=(0, 1))
    tokens, rows, following, head, targets, weights = task().arrays(EXAMPLES, batch, total=7)
    assert tokens.reshape(2, 8)[:, :6].tolist() == [[9, 3, 5, 4, 3, 200], [9, 7, 3, 0, 0, 0]]
    assert head is HEAD
    # (the token before the state's, by the row; the tokens that follow; the drafted ones)
    drafts = [
        (1, [5, 4, 3], [4, 3, None]),  # the head has no token 200
        (2, [4, 3, 200], [3, None, 5]),
        (3, [3, 200, 0], [None, 5, None]),
        (4, [200, 0, 0], [5, None, None]),
        (8, [7, 3, 0], [3, 3, None]),  # not token 1, before which there are no two tokens
        (9, [3, 0, 0], [3, None, None]),
    ]
    for at, (row, follow, draft) in enumerate(drafts):
        assert rows[at] == row
        assert following.reshape(DEPTH, -1)[:, at].tolist() == follow
        places = targets.reshape(DEPTH, -1)[:, at]
        shares = weights.reshape(DEPTH, -1)[:, at]
        for place, share, token in zip(places, shares, draft, strict=True):
            assert share == pytest.approx(0 if token is None else 1 / 7)
            assert token is None or HEAD[place] == token
    assert not weights.reshape(DEPTH, -1)[:, len(drafts) :].any()


def test_frequent_tokens_are_those_that_are_learned_most_often() -> None:
    examples = [Example(ids=(0, *[40] * 3, 30), learned=(1, 2, 3, 4))]
    assert frequent_tokens(examples, 48).tolist() == list(range(48))
    tokens = frequent_tokens(examples, 41)  # a multiple of 16
    assert tokens.tolist() == [*range(30), 30, 40]


def in_numpy(arrays: tuple[Array, ...], weights: dict[str, Array], states: Array) -> float:
    """The loss by the formulas, from the model's hidden states at the rows."""
    _, _, following, head, targets, shares = arrays
    table = weights["embed_tokens.weight"].astype(np.float64)

    def norm(x: Array, name: str) -> Array:
        scale = np.sqrt((x**2).mean(axis=1, keepdims=True) + 1e-6)
        scaled: Array = x / scale * weights[f"drafter.layer.{name}.weight"]
        return scaled

    def linear(x: Array, name: str) -> Array:
        product: Array = x @ weights[f"drafter.layer.{name}.weight"].T
        return product

    loss, state = 0.0, states.astype(np.float64)
    for depth in range(DEPTH):
        part = slice(depth * len(state), (depth + 1) * len(state))
        embedded = table[following[part]] * np.sqrt(CONFIG.hidden)
        x = np.concatenate([norm(state, "state_norm"), norm(embedded, "token_norm")], axis=1)
        gate = linear(x, "gate_proj")
        mixed = linear(gate / (1 + np.exp(-gate)) * linear(x, "up_proj"), "down_proj")
        state = linear(x, "proj") + mixed
        logits = state @ table[head].T
        totals = np.log(np.exp(logits).sum(axis=1))
        rates = totals - logits[np.arange(len(state)), targets[part]]
        loss += 0.8**depth * float((rates * shares[part]).sum())
    return loss


def test_the_loss_is_that_of_numpy() -> None:
    rng = np.random.default_rng(0)
    model, drafter = ARCHITECTURE.model(CONFIG), Drafter(CONFIG.hidden, len(HEAD))
    parameters = {**model.parameters(), **drafter.layer_parameters()}
    weights = {
        name: (rng.normal(size=x.shape) / np.sqrt(x.shape[-1])).astype(np.float32)
        for name, x in parameters.items()
    }
    arrays = task().arrays(EXAMPLES, Batch(bucket=SHAPE, examples=(0, 1)), total=7)
    tokens, rows, following, head, targets, shares = arrays
    frozen = frozen_graph(model, "loss", SHAPE, head_tokens=len(HEAD))
    states, _, _ = evaluate(frozen, [tokens, rows, following, head], weights)
    learned = [weights[name] for name in drafter.layer_parameters()]
    graph = drafter_loss_graph(frozen, drafter)
    inputs = [tokens, rows, following, head, targets, shares, *learned]
    (loss,) = evaluate(graph, inputs, weights)
    assert float(loss) == pytest.approx(in_numpy(arrays, weights, states), rel=1e-4)


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
    assert losses[-1] < 0.5 * losses[0]
    drafter = model_drafter(run.out, ARCHITECTURE, CONFIG)
    assert len(drafter.head_tokens) == CONFIG.vocab_size // 16 * 16
