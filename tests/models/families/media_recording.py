"""What transformers computes for prompts with images or sounds, in files of tests/golden."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tests.models.families.cases import CASES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

ANSWER = 12


class Recorded(NamedTuple):
    """What transformers computes for one prompt.

    rows    of embeddings, of all images or sounds
    logits  after the prompt: f32 (V,)
    answer  the greedy continuation: i32 (ANSWER,)
    """

    rows: NDArray[np.float32]
    logits: NDArray[np.float32]
    answer: NDArray[np.int32]


@functools.cache
def _arrays(file: Path) -> Mapping[str, NDArray[Any]]:
    with np.load(file) as arrays:
        return dict(arrays)


def read_recording(file: Path, name: str) -> Recorded:
    """The recording of a case."""
    return Recorded(*(_arrays(file)[f"{name}.{field}"] for field in Recorded._fields))


def with_answer(model: Any, inputs: dict[str, Any], rows: Any) -> Recorded:
    """The rows of the images or sounds, and what follows from the inputs."""
    logits = model(**inputs).logits[0, -1]
    return Recorded(rows.numpy(), logits.numpy(), best_tokens(model, inputs, ANSWER))


def best_tokens(
    model: Any, inputs: Mapping[str, Any], count: int, *, generated: int | None = None
) -> NDArray[np.int32]:
    """The most likely token of each step after a prompt: the greedy continuation.

    With `generated`, each step generates this token instead.
    """
    import torch
    import transformers

    def only_generated(_: Any, logits: Any) -> Any:
        logits = torch.full_like(logits, -torch.inf)
        logits[:, generated] = 0
        return logits

    forced = [] if generated is None else [only_generated]
    result = model.generate(
        **inputs, do_sample=False, max_new_tokens=count, eos_token_id=None, output_logits=True,
        return_dict_in_generate=True, logits_processor=transformers.LogitsProcessorList(forced),
    )  # fmt: skip
    best: NDArray[np.int64] = torch.cat(result.logits).argmax(1).numpy()
    return best.astype(np.int32)


def record(
    file: Path,
    names: Sequence[str],
    computed: Callable[[str, Path], Recorded],
    chosen: Sequence[str] = (),
) -> None:
    """Record the cases; if some are chosen, keep the recordings of the others."""
    from tests.models.families import oracle

    arrays: dict[str, Any] = {}
    for name in names:
        if chosen and name not in chosen:
            recording = read_recording(file, name)
        else:
            with tempfile.TemporaryDirectory() as folder:
                oracle.save_pretrained(CASES[name], Path(folder))
                recording = computed(name, Path(folder))
        arrays |= {f"{name}.{field}": array for field, array in recording._asdict().items()}
    np.savez_compressed(file, **arrays)
