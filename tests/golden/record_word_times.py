"""Record when transformers says that tokens of tests/baker/small_whisper.py are spoken.

pip install -e ".[families]"
python -m tests.golden.record_word_times
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers.models.whisper import generation_whisper

from tests.baker.small_whisper import GOLDEN, LAYERS, WORD_TIMES, small_whisper

_SKIPPED, _TOKENS, _FILTER = 3, 40, 7


def main() -> None:
    """Write attention weights of the alignment heads, and the first state of each token."""
    with tempfile.TemporaryDirectory() as parent:
        folder = small_whisper(Path(parent, "weights"))
        model = transformers.WhisperForConditionalGeneration.from_pretrained(
            folder, attn_implementation="eager"
        ).eval()
    with np.load(GOLDEN) as golden:
        window = torch.tensor(golden["spectrogram"])[None]
        tokens = golden["tokens"][:_TOKENS]
    with torch.no_grad():
        output = model(
            window, decoder_input_ids=torch.tensor(tokens)[None].long(), output_attentions=True
        )
        attention = output.cross_attentions[LAYERS - 1][0]
        # As in _extract_token_timestamps.
        deviation, mean = torch.std_mean(attention, dim=-2, keepdim=True, unbiased=False)
        weights = generation_whisper._median_filter((attention - mean) / deviation, _FILTER)
    costs = -weights.mean(dim=0)[_SKIPPED:-1].double().numpy()
    token, state = generation_whisper._dynamic_time_warping(costs)
    starts = [state[token == each].min() for each in range(len(costs))]
    np.savez_compressed(
        WORD_TIMES,
        tokens=tokens,
        attention=attention.numpy().astype(np.float32),
        starts=np.array(starts, np.int32),
        skipped=np.array(_SKIPPED, np.int32),
    )


if __name__ == "__main__":
    main()
