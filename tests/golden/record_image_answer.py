"""Record what transformers answers about the images of tests/e2e/test_images.py.

pip install -e ".[families]"
python -m tests.golden.record_image_answer
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import torch
import transformers
from PIL import Image
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

from tests.baker.small_smolvlm import ROWS, TEMPLATE, pixels, small_smolvlm
from tests.e2e.test_images import FILE, LENGTH, SIZES, TEXTS


def main() -> None:
    """Write the length of the prompt and the tokens of the answer."""
    with tempfile.TemporaryDirectory() as parent:
        folder = small_smolvlm(Path(parent, "weights"))
        processor = transformers.Idefics3Processor(
            Idefics3ImageProcessorPil.from_pretrained(folder),
            transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json")),
            image_seq_len=ROWS,
            chat_template=TEMPLATE,
        )
        content = []
        for text in TEXTS:
            content += [{"type": "image"}, {"type": "text", "text": text}]
        prompt = processor.apply_chat_template(
            [{"role": "user", "content": content}], add_generation_prompt=True
        )
        images = [Image.fromarray(pixels(*size)) for size in SIZES]
        inputs = processor(text=prompt, images=images, return_tensors="pt")
        model = transformers.AutoModelForImageTextToText.from_pretrained(folder).eval()
        options = {"do_sample": False, "max_new_tokens": LENGTH, "eos_token_id": None}
        with torch.no_grad():
            ids = model.generate(**inputs, **options)[0].tolist()
    length = inputs["input_ids"].shape[1]
    FILE.write_text(json.dumps({"prompt_tokens": length, "answer": ids[length:]}) + "\n")


if __name__ == "__main__":
    main()
