"""llama.cpp in this process, behind the Reader protocol, through the C API of llama-cpp-python.

The package is an optional extra, imported when a model is opened. This module imports nothing else
of Hearth, so that a benchmark can run it in an environment that has only that package.
"""

from __future__ import annotations

import ctypes
import importlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

INSTALL = (
    "pip install 'hearthd[compare]' (llama-cpp-python, which is built from source: a few minutes)"
)
# Tokens per call. A longer batch would also enlarge the cache of the sliding-window layers.
_CHUNK = 512
# Tokens per call with logits after every token: a megabyte per token, for Gemma.
_ROWS = 64
_DESCRIPTION = 128  # bytes; more than any description of a model


def _cpu_count() -> int:
    """The CPUs that this process may use; all of the machine where Python does not know."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


class LlamaError(Exception):
    """llama.cpp is not installed, cannot load a model, or cannot run it."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """How llama.cpp is configured.

    exact_cache       the KV cache is f32, instead of the default f16
    flash_attention   llama.cpp decides whether to use it, instead of never
    repack            weights are rearranged at load for the fastest kernels, such as AMX
    """

    exact_cache: bool
    flash_attention: bool
    repack: bool


# The oracle: no avoidable rounding, plain kernels.
EXACT = Profile(exact_cache=True, flash_attention=False, repack=False)
# The default of llama.cpp.
FASTEST = Profile(exact_cache=False, flash_attention=True, repack=True)


class LlamaCpp:
    """A GGUF model loaded by llama.cpp on the CPU, with one slot.

    A Reader (see runtime/interface.py) whose slot can only be continued or cleared: llama.cpp drops
    what has left the sliding window.
    """

    def __init__(
        self,
        model: Path,
        *,
        context: int,
        threads: int | None,
        profile: Profile,
        sequences: int = 1,
    ) -> None:
        """Load a model for `context` positions; `threads` None uses all available CPUs.

        The positions are shared by `sequences`, for `decode_sequences`. Raises LlamaError.
        """
        self._api = _import()
        self._context_size = context
        self._sequences = sequences
        self._cached_count = 0
        self._waiting: list[int] = []
        # The callback must live as long as the library may call it.
        self._messages: list[str] = []
        self._callback = self._api.llama_log_callback(self._log)
        self._api.llama_log_set(self._callback, ctypes.c_void_p(0))
        self._api.llama_backend_init()
        self._model = self._load(model, profile)
        self._context = self._open(model, threads or _cpu_count(), profile)
        self._memory = self._api.llama_get_memory(self._context)
        self._vocabulary = self._api.llama_model_get_vocab(self._model)

    @property
    def version(self) -> str:
        """The version of llama-cpp-python."""
        return str(self._api.__version__)

    @property
    def quantization(self) -> str:
        """The format of the weights by llama.cpp's name, such as Q8_0."""
        text = ctypes.create_string_buffer(_DESCRIPTION)
        self._api.llama_model_desc(self._model, text, _DESCRIPTION)
        return text.value.decode().split(" ", 2)[-1]  # after the architecture and the size

    @property
    def weights_bytes(self) -> int:
        """The size of all weights in the file, in bytes."""
        return int(self._api.llama_model_size(self._model))

    @property
    def vocab_size(self) -> int:
        """See Reader."""
        return int(self._api.llama_vocab_n_tokens(self._vocabulary))

    @property
    def context(self) -> int:
        """See Reader."""
        return self._context_size

    @property
    def slots(self) -> int:
        """See Reader."""
        return 1

    @property
    def chunk(self) -> int:
        """See Reader."""
        return _CHUNK

    @property
    def longest_prefill(self) -> int:
        """See Reader."""
        return _CHUNK

    @property
    def batch(self) -> int:
        """See Reader."""
        return 1

    def prefill(self, slot: int, tokens: Sequence[int], start: int) -> None:
        """See Reader; `start` is 0 or the next position.

        llama.cpp computes logits with the last token of a batch, so tokens wait for `decode` and
        are read in the same call, while a batch has room.
        """
        assert slot == 0, f"slot {slot}, expected 0"
        here = self._cached_count + len(self._waiting)
        assert start in (0, here), f"position {start}, expected 0 or {here}"
        if start == 0:
            self._api.llama_memory_clear(self._memory, True)
            self._cached_count = 0
            self._waiting = []
        self._waiting += tokens
        while len(self._waiting) >= _CHUNK:
            self._submit(self._waiting[:_CHUNK])
            self._waiting = self._waiting[_CHUNK:]

    def decode(
        self,
        slots: Sequence[int],
        tokens: Sequence[int],
        positions: Sequence[int],
        margins: Sequence[int] = (),  # noqa: ARG002 - logits of llama.cpp are always exact
    ) -> NDArray[np.float32]:
        """See Reader."""
        assert len(slots) == len(tokens) == 1, f"decode of {len(slots)} sequences, expected 1"
        here = self._cached_count + len(self._waiting)
        assert positions[0] in (0, here), f"position {positions[0]}, expected 0 or {here}"
        if positions[0] == 0:
            self.prefill(slots[0], (), 0)
        self._submit([*self._waiting, *tokens])
        self._waiting = []
        return self._logits(-1)[None]

    def logits_after_each(self, tokens: Sequence[int], first: int) -> Iterator[NDArray[np.float32]]:
        """The logits (V,) after each of tokens[first - 1:], read from position 0.

        The same as one decode per token, and many times faster.
        """
        self.prefill(0, (), 0)
        silent = first - 1
        for start in range(0, silent, _CHUNK):
            self._submit(tokens[start : min(start + _CHUNK, silent)])
        for start in range(silent, len(tokens), _ROWS):
            batch = tokens[start : start + _ROWS]
            self._submit(batch, every=True)
            for row in range(len(batch)):
                yield self._logits(row)

    def _logits(self, row: int) -> NDArray[np.float32]:
        """The logits (V,) after a token of the last batch; -1 is its last token."""
        logits = self._api.llama_get_logits_ith(self._context, row)
        return np.array(np.ctypeslib.as_array(logits, (self.vocab_size,)))

    def _submit(self, tokens: Sequence[int], *, every: bool = False) -> None:
        """Read at most a chunk of tokens; compute logits after the last token, or after `every`."""
        ids = (self._api.llama_token * len(tokens))(*tokens)  # a batch only keeps a pointer
        batch = self._api.llama_batch_get_one(ids, len(tokens))
        if every:
            batch.logits = (ctypes.c_int8 * len(tokens))(*[1] * len(tokens))
        if self._api.llama_decode(self._context, batch) != 0:
            reason = self._last_message()
            raise LlamaError(
                f"llama.cpp cannot read {len(tokens)} tokens at {self._cached_count}: {reason}"
            )
        self._cached_count += len(tokens)

    def tokenize(self, text: str) -> tuple[int, ...]:
        """See Vocabulary; names of special tokens in the text stay text."""
        data = text.encode()
        room = len(data) + 2  # a token has at least one byte; plus <bos> and <eos>
        ids = (self._api.llama_token * room)()
        count = self._api.llama_tokenize(self._vocabulary, data, len(data), ids, room, True, False)
        return tuple(ids[:count])

    def detokenize(self, token_ids: Sequence[int]) -> str:
        """See Vocabulary; a broken character at the end becomes U+FFFD."""
        return b"".join(self._piece(token) for token in token_ids).decode(errors="replace")

    def load_adapter(self, path: Path) -> Any:
        """Load a LoRA adapter from a GGUF file; raises LlamaError."""
        adapter = self._api.llama_adapter_lora_init(self._model, os.fsencode(path))
        if not adapter:
            raise LlamaError(f"llama.cpp cannot load {path}: {self._last_message()}")
        return adapter

    def use_adapter(self, adapter: Any) -> None:
        """Use an adapter of `load_adapter` with scale 1 in all that follows, or None."""
        used = [adapter] if adapter else []
        adapters = (self._api.llama_adapter_lora_p_ctypes * len(used))(*used)
        scales = (ctypes.c_float * len(used))(*[1.0] * len(used))
        self._api.llama_set_adapters_lora(self._context, adapters, len(used), scales)

    def close(self) -> None:
        """Free the model and its caches. No other method may be called afterwards."""
        self._api.llama_free(self._context)
        self._api.llama_model_free(self._model)

    def _piece(self, token: int) -> bytes:
        room = 256  # longer than any token of a known vocabulary
        text = ctypes.create_string_buffer(room)
        length = self._api.llama_token_to_piece(self._vocabulary, token, text, room, 0, True)
        if length < 0:
            raise LlamaError(f"token {token} has {-length} bytes, more than {room}")
        return text.raw[:length]

    def _load(self, model: Path, profile: Profile) -> Any:
        if not model.is_file():
            raise LlamaError(f"{model} does not exist; expected a GGUF file")
        parameters = self._api.llama_model_default_params()
        parameters.use_extra_bufts = profile.repack
        loaded = self._api.llama_model_load_from_file(os.fsencode(model), parameters)
        if not loaded:
            raise LlamaError(f"llama.cpp cannot load {model}: {self._last_message()}")
        return loaded

    def _open(self, model: Path, threads: int, profile: Profile) -> Any:
        parameters = self._api.llama_context_default_params()
        parameters.n_ctx = self._context_size
        parameters.n_seq_max = self._sequences
        parameters.n_batch = parameters.n_ubatch = _CHUNK
        parameters.n_threads = parameters.n_threads_batch = threads
        # Sliding-window layers keep only the window, as llama-server does by default.
        parameters.swa_full = False
        if profile.exact_cache:
            parameters.type_k = parameters.type_v = self._api.GGML_TYPE_F32
        if not profile.flash_attention:
            parameters.flash_attn_type = self._api.LLAMA_FLASH_ATTN_TYPE_DISABLED
        opened = self._api.llama_init_from_model(self._model, parameters)
        if not opened:
            raise LlamaError(f"llama.cpp cannot run {model}: {self._last_message()}")
        return opened

    def _log(self, _level: int, text: bytes, _data: object) -> None:
        self._messages[:] = [*self._messages[-9:], text.decode(errors="replace").strip()]

    def _last_message(self) -> str:
        return next((message for message in reversed(self._messages) if message), "no reason given")


def _import() -> Any:
    try:
        return importlib.import_module("llama_cpp")
    except ImportError as error:
        raise LlamaError(f"llama.cpp is not installed ({error}): {INSTALL}") from error
