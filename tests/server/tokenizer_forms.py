"""Tokenizers that change a text before they read its bytes: a space before it, or NFC."""

from __future__ import annotations

from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers, processors

from tests.server import fakes

_TEMPLATE = processors.TemplateProcessing(
    single="<bos> $A", pair="<bos> $A <bos> $B", special_tokens=[("<bos>", fakes.BOS)]
)


def _form(scheme: str) -> Tokenizer:
    tokenizer = fakes.gemma_like()
    if scheme == "prepend":  # Llama 2, Mistral, Phi 3
        space = normalizers.Replace(" ", "▁")
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), space])
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([])
        tokenizer.decoder = decoders.Sequence(
            [
                decoders.Replace("▁", " "),
                decoders.ByteFallback(),
                decoders.Fuse(),
                decoders.Strip(" ", 1, 0),
            ]
        )
    elif scheme == "bytes":
        tokenizer = fakes.byte_level()
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    elif scheme == "composed":  # Qwen 2
        tokenizer = fakes.byte_level()
        tokenizer.normalizer = normalizers.NFC()
    else:  # Llama 2 with legacy=false
        tokenizer.normalizer = normalizers.Sequence([])
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", scheme, split=False)
        tokenizer.decoder = decoders.Sequence(
            [decoders.ByteFallback(), decoders.Metaspace("▁", scheme), decoders.Fuse()]
        )
    tokenizer.post_processor = _TEMPLATE
    return tokenizer


FORMS = {name: _form(name) for name in ("prepend", "always", "first", "never", "bytes", "composed")}
