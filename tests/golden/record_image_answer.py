"""Record what transformers answers about the images and sounds of tests/e2e/test_images.py.

pip install -e ".[families]" torchvision
python -m tests.golden.record_image_answer
python -m tests.golden.record_image_answer lfm2-vl
"""

from __future__ import annotations

import functools
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers
from PIL import Image
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.llava.image_processing_pil_llava import LlavaImageProcessorPil
from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from typing_extensions import override

from tests.baker import (
    small_gemma3,
    small_gemma4,
    small_gemma4_sound,
    small_internvl,
    small_lfm2vl,
    small_llava,
    small_mistral3,
    small_qwen25omni,
    small_qwen35,
    small_smolvlm,
)
from tests.baker.small_gemma4_sound import samples
from tests.baker.small_smolvlm import pixels
from tests.e2e.image_models import FILE, LENGTH, MODELS, Item, answers
from tests.models.families import oracle
from tests.models.families.grid_images import see_each_other_within_windows, squares
from tests.models.families.media_recording import best_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_GEMMA_TOKENS = {
    "boi_token": "<start_of_image>",
    "eoi_token": "<end_of_image>",
    "image_token": "<image_soft_token>",
}
_INTERN_TOKENS = {
    "start_image_token": "<img>",
    "end_image_token": "</img>",
    "context_image_token": "<IMG_CONTEXT>",
    "video_token": "<video>",
}


def main(*names: str) -> None:
    """Write the length of the prompt and the answer of each model, or of those named."""
    with tempfile.TemporaryDirectory() as parent:
        new = {name: answer(name, Path(parent, name)) for name in names or MODELS}
    every = {**answers(), **new}
    recorded = {name: every[name] for name in MODELS}
    FILE.write_text(json.dumps(recorded) + "\n")


def _smolvlm_processor(folder: Path) -> Any:
    return transformers.Idefics3Processor(
        Idefics3ImageProcessorPil.from_pretrained(folder),
        transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json")),
        image_seq_len=small_smolvlm.ROWS,
        chat_template=small_smolvlm.TEMPLATE,
    )


def _llava_processor(folder: Path) -> Any:
    return transformers.LlavaProcessor(
        LlavaImageProcessorPil.from_pretrained(folder),
        transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json")),
        patch_size=small_llava.CONFIG.patch_size,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=small_llava.TEMPLATE,
    )


def _mistral3_processor(folder: Path) -> Any:
    return transformers.PixtralProcessor(
        PixtralImageProcessorPil.from_pretrained(folder),
        transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json")),
        patch_size=small_mistral3.PATCH,
        spatial_merge_size=small_mistral3.MERGED,
        chat_template=small_mistral3.TEMPLATE,
    )


def _internvl_processor(folder: Path) -> Any:
    return transformers.InternVLProcessor(
        GotOcr2ImageProcessorPil.from_pretrained(folder),
        transformers.PreTrainedTokenizerFast(
            tokenizer_file=str(folder / "tokenizer.json"), extra_special_tokens=_INTERN_TOKENS
        ),
        transformers.InternVLVideoProcessor(),
        image_seq_length=small_internvl.ROWS,
        chat_template=small_internvl.TEMPLATE,
    )


def _lfm2vl_processor(folder: Path) -> Any:
    return transformers.Lfm2VlProcessor(
        transformers.Lfm2VlImageProcessor.from_pretrained(folder),
        transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json")),
        chat_template=small_lfm2vl.TEMPLATE,
    )


def _gemma3_processor(folder: Path) -> Any:
    return transformers.Gemma3Processor(
        Gemma3ImageProcessorPil.from_pretrained(folder),
        transformers.PreTrainedTokenizerFast(
            tokenizer_file=str(folder / "tokenizer.json"), extra_special_tokens=_GEMMA_TOKENS
        ),
        image_seq_length=small_gemma3.ROWS,
        chat_template=small_gemma3.TEMPLATE,
    )


class _QwenProcessor:
    """Qwen3VLProcessor for images alone: the processor of videos needs torchvision."""

    def __init__(self, folder: Path) -> None:
        self._images = Qwen2VLImageProcessorPil.from_pretrained(folder)
        self._tokenizer = transformers.PreTrainedTokenizerFast(
            tokenizer_file=str(folder / "tokenizer.json"), chat_template=small_qwen35.TEMPLATE
        )

    def apply_chat_template(self, messages: Any, **options: Any) -> str:
        text: str = self._tokenizer.apply_chat_template(messages, tokenize=False, **options)
        return text

    def __call__(self, *, text: str, images: Any, return_tensors: str) -> Any:
        read = self._images(images, return_tensors=return_tensors)
        counts = read["image_grid_thw"].prod(-1) // small_qwen35.MERGED**2
        text = _repeated(text, "<|image_pad|>", counts.tolist())
        ids = self._tokenizer(text, return_tensors=return_tensors)["input_ids"]
        is_image = (ids == small_qwen35.token("<|image_pad|>")).int()
        return {
            "input_ids": ids,
            "attention_mask": torch.ones_like(ids),
            "mm_token_type_ids": is_image,
            **read,
        }


class _OmniProcessor:
    """Qwen2_5OmniProcessor without videos."""

    def __init__(self, folder: Path) -> None:
        self._images = Qwen2VLImageProcessorPil.from_pretrained(folder)
        self._sounds = transformers.WhisperFeatureExtractor.from_pretrained(folder)
        self._tokenizer = transformers.PreTrainedTokenizerFast(
            tokenizer_file=str(folder / "tokenizer.json"), chat_template=small_qwen25omni.TEMPLATE
        )

    def apply_chat_template(self, messages: Any, **options: Any) -> str:
        text: str = self._tokenizer.apply_chat_template(messages, tokenize=False, **options)
        return text

    def __call__(self, *, text: str, images: Any, return_tensors: str, audio: Any) -> Any:
        read = self._images(images, return_tensors=return_tensors)
        heard = self._sounds(
            audio, sampling_rate=small_qwen25omni.RATE, padding="max_length",
            return_attention_mask=True, return_tensors=return_tensors,
        )  # fmt: skip
        counts = read["image_grid_thw"].prod(-1) // small_qwen35.MERGED**2
        text = _repeated(text, "<|IMAGE|>", counts.tolist())
        # As `Qwen2_5OmniProcessor.__call__`.
        lengths = (heard["attention_mask"].sum(-1) - 1) // 2 + 1
        text = _repeated(text, "<|AUDIO|>", ((lengths - 2) // 2 + 1).tolist())
        ids = self._tokenizer(text, return_tensors=return_tensors)["input_ids"]
        return {
            "input_ids": ids,
            "attention_mask": torch.ones_like(ids),
            "input_features": heard["input_features"],
            "feature_attention_mask": heard["attention_mask"],
            **read,
        }


class _Gemma4Processor:
    """Gemma4Processor: it needs the processor of videos, which needs torchvision."""

    _extractor = transformers.Gemma4AudioFeatureExtractor
    _stride = 2  # of each of two convolutions over the frames of a sound

    def __init__(self, folder: Path, template: str) -> None:
        self._images = Gemma4ImageProcessorPil.from_pretrained(folder)
        self._sounds = self._extractor()
        self._tokenizer = transformers.PreTrainedTokenizerFast(
            tokenizer_file=str(folder / "tokenizer.json"), chat_template=template
        )

    def apply_chat_template(self, messages: Any, **options: Any) -> str:
        text: str = self._tokenizer.apply_chat_template(messages, tokenize=False, **options)
        return text

    def __call__(self, *, text: str, images: Any, return_tensors: str, audio: Any = ()) -> Any:
        read = self._read(images)
        text = _filled(text, "image", map(int, read.pop("num_soft_tokens_per_image")))
        if audio:
            sounds = self._sounds([*audio], return_tensors=return_tensors)
            # As `replace_audio_token`.
            inside = sounds["input_features_mask"][:, :: self._stride][:, :: self._stride]
            text = _filled(text, "audio", inside.sum(-1).tolist())
            read |= sounds
        ids = self._tokenizer(text, return_tensors=return_tensors)["input_ids"]
        is_image = (ids == small_gemma4.token("<|image|>")).int()
        return {
            "input_ids": ids,
            "attention_mask": torch.ones_like(ids),
            "mm_token_type_ids": is_image,
            **read,
        }

    def _read(self, images: Any) -> Any:
        return self._images(images, return_tensors="pt")


class _UnifiedProcessor(_Gemma4Processor):
    """Gemma4UnifiedProcessor: its processor of images needs torchvision."""

    _extractor = transformers.Gemma4UnifiedAudioFeatureExtractor
    _stride = 1

    @override
    def _read(self, images: Any) -> Any:
        """The squares of the images that Gemma 4's processor resizes."""
        read, patch = super()._read(images), small_gemma4.PATCH
        resized = []
        for patches, places in zip(read["pixel_values"], read["image_position_ids"], strict=True):
            columns, rows = (places.max(0).values + 1).tolist()
            values = (
                patches[: rows * columns].reshape(rows, columns, patch, patch, 3).swapaxes(1, 2)
            )
            image = values.reshape(rows * patch, columns * patch, 3) * 255
            resized.append(image.round().to(torch.uint8).numpy())
        counts = read["num_soft_tokens_per_image"]
        side = patch * small_gemma4.MERGED
        return {**squares(resized, side), "num_soft_tokens_per_image": counts}


_PROCESSORS: Mapping[str, Callable[[Path], Any]] = {
    "smolvlm": _smolvlm_processor,
    "gemma3-images": _gemma3_processor,
    "qwen3.5-images": _QwenProcessor,
    "qwen3-vl-images": _QwenProcessor,
    "qwen2.5-vl-images": _QwenProcessor,
    "qwen2.5-omni": _OmniProcessor,
    "gemma4-images": functools.partial(_Gemma4Processor, template=small_gemma4.TEMPLATE),
    "gemma4-blocks": functools.partial(_Gemma4Processor, template=small_gemma4.TEMPLATE),
    "gemma4-sound": functools.partial(_Gemma4Processor, template=small_gemma4_sound.TEMPLATE),
    "gemma4-unified": functools.partial(_UnifiedProcessor, template=small_gemma4_sound.TEMPLATE),
    "lfm2-vl": _lfm2vl_processor,
    "internvl": _internvl_processor,
    "llava": _llava_processor,
    "mistral3-images": _mistral3_processor,
}


def _filled(text: str, kind: str, counts: Iterable[int]) -> str:
    """The text with the tokens of each image or sound, between a start and an end."""
    token = f"<|{kind}|>"
    return _repeated(text.replace(token, f"<|{kind}>{token}<{kind}|>"), token, counts)


def _repeated(text: str, token: str, counts: Iterable[int]) -> str:
    """The text with each token as often as its image or sound has rows."""
    start, *others = text.split(token)
    for count, other in zip(counts, others, strict=True):
        start += token * count + other
    return start


def _find_placeholders_in_prompts_only(model: Any) -> None:
    """Have Gemma 4 read a placeholder that it generates as its token, as llama.cpp does.

    transformers reads padding instead.
    """
    find = model.get_placeholder_mask

    def find_in_prompts(ids: Any, embedded: Any) -> Any:
        masks = find(ids, embedded)
        return masks if ids.shape[1] > 1 else tuple(map(torch.zeros_like, masks))

    model.get_placeholder_mask = find_in_prompts


def _part(item: Item) -> dict[str, str]:
    if isinstance(item, str):
        return {"type": "text", "text": item}
    return {"type": "audio" if isinstance(item, int) else "image"}


def answer(name: str, folder: Path) -> dict[str, Any]:
    """The answer of one model."""
    question = MODELS[name].question
    MODELS[name].write(folder)
    reads = _PROCESSORS[name](folder)
    content = [_part(item) for item in question]
    prompt = reads.apply_chat_template(
        [{"role": "user", "content": content}], add_generation_prompt=True
    )
    images = [Image.fromarray(pixels(*item)) for item in question if isinstance(item, tuple)]
    sounds = [samples(item, seed=0) for item in question if isinstance(item, int)]
    more: dict[str, Any] = {"audio": sounds} if sounds else {}
    inputs = reads(text=prompt, images=images, return_tensors="pt", **more)
    see_each_other_within_windows()
    model = oracle.load(folder)
    if name.startswith("gemma4"):
        _find_placeholders_in_prompts_only(model.model)
    placeholders = {
        kind: getattr(model.config, f"{kind}_token_id")
        for kind, media in (("image", images), ("audio", sounds))
        if media
    }
    count = MODELS[name].placeholders
    with torch.no_grad():
        return {
            "prompt_tokens": inputs["input_ids"].shape[1],
            "answer": best_tokens(model, inputs, LENGTH).tolist(),
            "after_placeholders": {
                kind: best_tokens(model, inputs, count, generated=token).tolist()
                for kind, token in placeholders.items()
            },
        }


if __name__ == "__main__":
    main(*sys.argv[1:])
