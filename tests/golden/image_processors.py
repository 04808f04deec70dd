"""The processors of the models of tests/e2e/image_models.py: prompts, pixels and samples for them.

They are transformers' where that has one which needs neither torchvision nor videos.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
import transformers
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil
from transformers.models.glm4v.image_processing_pil_glm4v import Glm4vImageProcessorPil
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.llava.image_processing_pil_llava import LlavaImageProcessorPil
from transformers.models.llava_next.image_processing_pil_llava_next import (
    LlavaNextImageProcessorPil,
)
from transformers.models.paddleocr_vl.image_processing_pil_paddleocr_vl import (
    PaddleOCRVLImageProcessorPil,
)
from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from typing_extensions import override

from hearthd.server.images.slices import sliced
from tests.baker import (
    small_gemma3,
    small_gemma4,
    small_gemma4_sound,
    small_glm4v,
    small_internvl,
    small_lfm2vl,
    small_llava,
    small_minicpmv,
    small_mistral3,
    small_paddleocr,
    small_qwen25omni,
    small_qwen35,
    small_smolvlm,
)
from tests.models.families.grid_images import squares

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

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


def _llava_next_processor(folder: Path) -> Any:
    return transformers.LlavaNextProcessor(
        LlavaNextImageProcessorPil.from_pretrained(folder),
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


class _TemplatedProcessor:
    """Writes prompts with a chat template, and tokenizes them."""

    def __init__(self, folder: Path, template: str) -> None:
        self._tokenizer = transformers.PreTrainedTokenizerFast(
            tokenizer_file=str(folder / "tokenizer.json"), chat_template=template
        )

    def apply_chat_template(self, messages: Any, **options: Any) -> str:
        text: str = self._tokenizer.apply_chat_template(messages, tokenize=False, **options)
        return text

    def _inputs(self, text: str, image: int, read: Mapping[str, Any]) -> dict[str, Any]:
        """What a model reads: a text in which a token stands for images, and `read`."""
        ids = self._tokenizer(text, return_tensors="pt")["input_ids"]
        return {
            "input_ids": ids,
            "attention_mask": torch.ones_like(ids),
            "mm_token_type_ids": (ids == image).int(),
            **read,
        }


class _QwenProcessor(_TemplatedProcessor):
    """Qwen3VLProcessor for images alone: the processor of videos needs torchvision."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, small_qwen35.TEMPLATE)
        self._images = Qwen2VLImageProcessorPil.from_pretrained(folder)

    def __call__(self, *, text: str, images: Any, return_tensors: str) -> Any:
        read = self._images(images, return_tensors=return_tensors)
        counts = read["image_grid_thw"].prod(-1) // small_qwen35.MERGED**2
        text = _repeated(text, "<|image_pad|>", counts.tolist())
        return self._inputs(text, small_qwen35.token("<|image_pad|>"), read)


class _GlmProcessor(_TemplatedProcessor):
    """Glm4vProcessor without videos."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, small_glm4v.TEMPLATE)
        self._images = Glm4vImageProcessorPil.from_pretrained(folder)

    def __call__(self, *, text: str, images: Any, return_tensors: str) -> Any:
        read = self._images(images, return_tensors=return_tensors)
        counts = read["image_grid_thw"].prod(-1) // small_glm4v.MERGED**2
        text = _repeated(text, "<|image|>", counts.tolist())
        return self._inputs(text, small_glm4v.token("<|image|>"), read)


class _PaddleProcessor(_TemplatedProcessor):
    """PaddleOCRVLProcessor without its tokenizer."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, small_paddleocr.TEMPLATE)
        self._images = PaddleOCRVLImageProcessorPil.from_pretrained(folder)

    def __call__(self, *, text: str, images: Any, return_tensors: str) -> Any:
        read = self._images(images, return_tensors=return_tensors)
        counts = read["image_grid_thw"].prod(-1) // small_paddleocr.MERGED**2
        text = _repeated(text, "<|IMAGE_PLACEHOLDER|>", counts.tolist())
        return self._inputs(text, small_paddleocr.token("<|IMAGE_PLACEHOLDER|>"), read)


class _MiniCpmProcessor(_TemplatedProcessor):
    """MiniCPMVProcessor, which transformers does not have.

    tests/server/images/test_slices.py compares the sizes of slices with the original's.
    """

    _marker = "(<image>./</image>)"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, small_minicpmv.TEMPLATE)

    @override
    def apply_chat_template(self, messages: Any, **options: Any) -> str:
        lines = [
            [item.get("text", self._marker) for item in message["content"]] for message in messages
        ]
        texts = [
            {**message, "content": "\n".join(content)}
            for message, content in zip(messages, lines, strict=True)
        ]
        return super().apply_chat_template(texts, **options)

    def __call__(self, *, text: str, images: Any, return_tensors: str) -> Any:
        parts = [sliced(image, small_minicpmv.IMAGES, "") for image in images]
        rows = "<unk>" * small_minicpmv.ROWS
        for number, cut in enumerate(parts):
            line = f"<slice>{rows}</slice>" * cut.columns
            slices = "\n".join([line] * cut.rows)
            image = f"<image_id>{number}</image_id><image>{rows}</image>{slices}"
            text = text.replace(self._marker, image, 1)
        ids = self._tokenizer(text, return_tensors=return_tensors)["input_ids"]
        pixels = [part for cut in parts for part in cut.pixels]
        return {"input_ids": ids, "image": small_minicpmv.IMAGE, "images": pixels}


class _OmniProcessor(_TemplatedProcessor):
    """Qwen2_5OmniProcessor without videos."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, small_qwen25omni.TEMPLATE)
        self._images = Qwen2VLImageProcessorPil.from_pretrained(folder)
        self._sounds = transformers.WhisperFeatureExtractor.from_pretrained(folder)

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


class _Gemma4Processor(_TemplatedProcessor):
    """Gemma4Processor: it needs the processor of videos, which needs torchvision."""

    _extractor = transformers.Gemma4AudioFeatureExtractor
    _stride = 2  # of each of two convolutions over the frames of a sound

    def __init__(self, folder: Path, template: str) -> None:
        super().__init__(folder, template)
        self._images = Gemma4ImageProcessorPil.from_pretrained(folder)
        self._sounds = self._extractor()

    def __call__(self, *, text: str, images: Any, return_tensors: str, audio: Any = ()) -> Any:
        read = self._read(images)
        text = _filled(text, "image", map(int, read.pop("num_soft_tokens_per_image")))
        if audio:
            sounds = self._sounds([*audio], return_tensors=return_tensors)
            # As `replace_audio_token`.
            inside = sounds["input_features_mask"][:, :: self._stride][:, :: self._stride]
            text = _filled(text, "audio", inside.sum(-1).tolist())
            read |= sounds
        return self._inputs(text, small_gemma4.token("<|image|>"), read)

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


PROCESSORS: Mapping[str, Callable[[Path], Any]] = {
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
    "llava1.6": _llava_next_processor,
    "mistral3-images": _mistral3_processor,
    "glm4.1v-images": _GlmProcessor,
    "glm-ocr": _GlmProcessor,
    "paddleocr-vl": _PaddleProcessor,
    "minicpm-v": _MiniCpmProcessor,
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
