"""Count the experts that neighboring tokens of a text choose together.

    python -m benchmarks.synthetic_weights gemma-3-270m-q4_k_m.gguf gemma4-26b-a4b 26b.gguf \\
      --repeat-experts --layers 6
    python -m benchmarks.expert_overlap 26b.gguf

A verify of several tokens reads the experts of all of them, each once, so its cost depends on this
number. The model of a GGUF file reads the beginnings of pages of the documentation in NumPy, layer
by layer. Each layer writes its experts to a temporary folder, in f32.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.drafts.replayed_drafts import page_texts
from benchmarks.inputs import existing_path
from hearthd.baker.calibration.reading import FileWeights
from hearthd.baker.pipeline.weights_config import identify
from hearthd.baker.presentation.table import Table, print_table
from hearthd.baker.tokenizer.tokenizer_files import read_tokenizer
from hearthd.baker.weights.gguf import GgufSource
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.decoder.experts import ExpertsConfig
from hearthd.models.decoder.next_token_loss import whole_sequence_states
from hearthd.models.dsl import functions as f
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.graph import op_of
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DType, TensorType
from hearthd.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from hearthd.baker.weights.source import WeightSource
    from hearthd.models.decoder.architecture import Architecture
    from hearthd.models.dsl.graph import Tensor

# How many different experts 2, 4 or 8 neighboring tokens choose, divided by the 8 of 128 that one
# token chooses.
#
# Cohere's production models: a token shares 38 % of its experts with the token before it. Four
# tokens choose 31 % fewer different experts than independent tokens would, so about 2.5 times 8:
# https://cohere.com/blog/mixture-of-experts-models-get-more-from-speculative-decoding (April 2026),
# as https://headsupai.io/updates/cohere-proves-mixture-experts-models-amplify-speculative-decoding-gains
# summarizes it.
#
# Qwen3-30B-A3B: a cache of the experts that a layer used last holds 47 % of a token's experts if it
# has 8, the experts of the token before; 65 % if it has 16, and 75 % if it has 24. These are the
# rates of LRU in "Not All Models Suit Expert Offloading" (arXiv 2505.16056), from the curve of
# plot/mchr.pdf of https://github.com/ljcleo/moe-lrc, commit 4ff45dd. Each further token adds the
# experts that such a cache misses; for 4 and 8 tokens this is an approximation.
PUBLISHED: Mapping[str, Mapping[int, float]] = {
    "Cohere": {2: 1.62, 4: 2.5},
    "Qwen3-30B-A3B": {2: 1.53, 4: 2.31, 8: 3.4},
}
_NEIGHBORS = (2, 4, 8)
_UP = "experts.up_proj."  # a parameter of each layer with experts


def distinct(chosen: NDArray[np.int32], count: int) -> float:
    """The number of distinct experts of `count` neighboring tokens, over the number of one token.

    `chosen` has the experts of the tokens of a text, (T, C).
    """
    windows = (chosen[start : start + count] for start in range(len(chosen) - count + 1))
    found = [len(np.unique(window)) for window in windows]
    return float(statistics.mean(found) / chosen.shape[1])


def independent(experts: int, each: int, count: int) -> float:
    """`distinct` of tokens that each choose `each` experts at random."""
    return experts / each * (1 - (1 - each / experts) ** count)


def choices(
    source: WeightSource,
    architecture: Architecture[Any],
    config: ExpertsConfig,
    texts: NDArray[np.int32],
    folder: Path,
) -> list[NDArray[np.int32]]:
    """The experts that texts (S, T) choose in each layer with experts, i32 (S, T, C).

    `folder` is a temporary one. Raises a WeightsError.
    """
    model = architecture.model(config)
    graph = trace(
        "experts",
        lambda tokens: (whole_sequence_states(model, tokens, len(texts)),),
        {"tokens": TensorType((texts.size,), DType.I32)},
        parameters=model.parameters(),
    )
    names = {id(tensor): name for name, tensor in graph.parameters.items()}
    found: list[NDArray[np.int32]] = []

    def replace(node: Tensor, arrays: tuple[Any, ...]) -> tuple[Any, ...]:
        if op_of(node) is f.routed_linear.op and _UP in names.get(id(node.inputs[2]), ""):
            found.append(arrays[1].reshape(*texts.shape, -1))
        return arrays

    weights = FileWeights(source, architecture, config, graph.parameters, folder)
    evaluate(graph, [texts.reshape(-1)], weights, replace=replace)
    return found


def overlap_table(config: ExpertsConfig, layers: Sequence[NDArray[np.int32]]) -> Table:
    """The figures of layers, each with its choices (S, T, C), and the published ones."""
    by_size = [
        [statistics.mean(distinct(text, size) for text in layer) for layer in layers]
        for size in _NEIGHBORS
    ]
    random = [independent(config.experts, config.experts_per_token, size) for size in _NEIGHBORS]
    rows = [
        ("this file, mean of its layers", *(f"{statistics.mean(of):.2f}" for of in by_size)),
        ("the layers", *(f"{min(of):.2f} to {max(of):.2f}" for of in by_size)),
        ("independent choices", *(f"{value:.2f}" for value in random)),
    ]
    rows += [
        (f"{name}, 8 of 128", *(f"{known[n]:.2f}" if n in known else "" for n in _NEIGHBORS))
        for name, known in PUBLISHED.items()
    ]
    return Table(
        title="Different experts of neighboring tokens, divided by the experts of one token",
        headings=("", *(f"{size} tokens" for size in _NEIGHBORS)),
        rows=tuple(rows),
    )


def main() -> None:
    """Read the texts and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("weights", type=existing_path, help="GGUF file of a model with experts")
    parser.add_argument("--texts", type=int, default=4, help="texts to read (default: 4)")
    parser.add_argument("--tokens", type=int, default=64, help="tokens of each (default: 64)")
    arguments = parser.parse_args()
    source = GgufSource(arguments.weights)
    family = identify(source, None)
    if not isinstance(family.config, ExpertsConfig):
        raise SystemExit(
            f"{arguments.weights}: {family.name} has no experts; give a file with them"
        )
    library = read_tokenizer(source, vocab_size=family.config.vocab_size).tokenizer
    texts = page_texts(Tokenizer(library, bos=None), arguments.texts, arguments.tokens)
    architecture = ARCHITECTURES[family.architecture]
    with tempfile.TemporaryDirectory() as folder:
        found = choices(
            source, architecture, family.config, np.array(texts, np.int32), Path(folder)
        )
    print_table(overlap_table(family.config, found))


if __name__ == "__main__":
    main()
