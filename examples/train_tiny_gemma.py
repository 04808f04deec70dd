"""Train a tiny Gemma 3 on text that this script generates.

The model is Gemma 3 with sliding and global layers, but smaller; its tokens are bytes. It learns
the order of the days of the week.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models

from examples.training import Array, Task, Trained, draw_losses, train
from hearthd.models.decoder.next_token_loss import next_token_loss
from hearthd.models.dsl.optimizers import Adam
from hearthd.models.dsl.types import DType, TensorType
from hearthd.models.families.gemma3 import ARCHITECTURE, Config, Gemma3

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hearthd.models.dsl.graph import Tensor

SEQUENCES, LENGTH = 4, 64
END = 256  # the token after the bytes, which ends an answer and is in no text
CONFIG = Config(
    layers=2, hidden=64, ffn=128, heads=4, kv_heads=2, head_dim=16, max_context=2048,
    vocab_size=END + 1, query_scale=16**-0.5, windows=(24, None),
)  # fmt: skip
DAYS = "monday tuesday wednesday thursday friday saturday sunday".split()


def text(rng: np.random.Generator, bytes_: int) -> Array:
    """Sentences such as "after monday comes tuesday.", i32 (bytes_,)."""
    sentences = b""
    while len(sentences) < bytes_:
        day = int(rng.integers(len(DAYS)))
        sentences += f"after {DAYS[day]} comes {DAYS[(day + 1) % len(DAYS)]}. ".encode()
    return np.frombuffer(sentences[:bytes_], np.uint8).astype(np.int32)


def batches(seed: int) -> Callable[[int], tuple[Array, Array]]:
    """The tokens of a step, (SEQUENCES * LENGTH,), and the next token of each."""

    def batch_of(step: int) -> tuple[Array, Array]:
        rng = np.random.default_rng([seed, step])
        rows = np.stack([text(rng, LENGTH + 1) for _ in range(SEQUENCES)])
        return rows[:, :-1].reshape(-1), rows[:, 1:].reshape(-1)

    return batch_of


def loss_of(model: Gemma3) -> Callable[[Tensor, Tensor], Tensor]:
    """The cross-entropy of the next byte; every sequence starts at position 0."""

    def loss(tokens: Tensor, targets: Tensor) -> Tensor:
        return next_token_loss(model, tokens, targets, sequences=SEQUENCES)

    return loss


def initial(parameters: Mapping[str, Tensor], seed: int) -> dict[str, Array]:
    """Norms of 1, and random matrices with rows of length 1, approximately."""
    rng = np.random.default_rng(seed)
    return {
        name: np.ones(weight.shape, np.float32)
        if name.endswith("norm.weight")
        else (rng.normal(size=weight.shape) / np.sqrt(weight.shape[-1])).astype(np.float32)
        for name, weight in parameters.items()
    }


# --- a Hugging Face folder


def save(weights: dict[str, Array], folder: Path) -> None:
    """Write config.json, model.safetensors and tokenizer.json."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {}
    for name, array in weights.items():
        stored = ARCHITECTURE.tensors.find(CONFIG, name, (), gguf=False)
        tensors[stored.name] = (array - stored.offset).astype(np.float32)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(hugging_face_config(), indent=2))
    tokenizer().save(str(folder / "tokenizer.json"))


def hugging_face_config(config: Config = CONFIG) -> dict[str, Any]:
    """A configuration of two layers, one of them with full attention, by Hugging Face's names."""
    return {
        "model_type": "gemma3_text",
        "num_hidden_layers": config.layers,
        "hidden_size": config.hidden,
        "intermediate_size": config.ffn,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "query_pre_attn_scalar": config.head_dim,
        "sliding_window": config.windows[0],
        "sliding_window_pattern": 2,
        "max_position_embeddings": config.max_context,
        "vocab_size": config.vocab_size,
        "eos_token_id": END,
    }


def tokenizer() -> Tokenizer:
    """A token for each byte, and <eos>."""
    vocabulary = {f"<0x{byte:02X}>": byte for byte in range(END)} | {"<eos>": END}
    result = Tokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True))
    result.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    result.add_special_tokens(["<eos>"])
    return result


def fit(steps: int, seed: int, say: Callable[[str], None]) -> Trained:
    """Train for `steps` steps; `say` prints the progress."""
    model = Gemma3(CONFIG)
    tokens = TensorType((SEQUENCES * LENGTH,), DType.I32)
    task = Task(
        weights=model.parameters(),
        batch={"tokens": tokens, "targets": tokens},
        loss=loss_of(model),
        optimizer=Adam(rate=3e-3),
    )
    return train(task, initial(task.weights, seed), batches(seed), steps=steps, say=say)


def main(
    steps: Annotated[int, typer.Option(min=1, help="Steps of training.")] = 200,
    out: Annotated[Path, typer.Option(help="Folder for the weights and loss.svg.")] = Path(
        "tiny-gemma"
    ),
    seed: Annotated[int, typer.Option(help="Seed of the initial weights and the text.")] = 0,
) -> None:
    """Train a tiny Gemma 3 on bytes of "after monday comes tuesday. ...", in about a minute.

    Writes a Hugging Face folder and a plot of the loss. Then:
    hearth bake gemma3 --weights tiny-gemma --precision f32 --out tiny-bundle &&
    hearth generate tiny-bundle "after friday comes " --temperature 0 --max-tokens 9
    """
    trained = fit(steps, seed, typer.echo)
    save(trained.weights, out)
    draw_losses(trained, out / "loss.svg", "A tiny Gemma 3 learns the days of the week")
    typer.echo(
        f"{out}: next: hearth bake gemma3 --weights {out} --precision f32 --out {out}-bundle"
    )


if __name__ == "__main__":
    typer.run(main)
