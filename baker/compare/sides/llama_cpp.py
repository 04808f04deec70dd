"""llama.cpp in this process, behind the Reader protocol, through llama-cpp-python's C API.

The package is the optional extra `compare`, imported when a model is opened. Nothing else of ours
is imported, so that a benchmark can run this file in an environment that holds only that package.
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
    "pip install 'hearth[compare]' (llama-cpp-python, which is built from source: a few minutes)"
)
# Tokens per call. A longer batch would also enlarge the cache of the sliding-window layers.
_CHUNK = 512
# Tokens per call that gives logits after each of them: a megabyte a token, for Gemma.
_ROWS = 64
_DESCRIPTION = 128  # bytes, more than a model's description has


class LlamaError(Exception):
    """llama.cpp is not installed, or cannot do what was asked."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """How llama.cpp is set up.

    exact_cache       the KV cache in f32, else llama.cpp's default (f16)
    flash_attention   off, else llama.cpp decides
    repack            weights rearranged at load for the CPU's fastest kernels (AMX among them)
    """

    exact_cache: bool
    flash_attention: bool
    repack: bool


# The oracle: nothing rounded that need not be, the plain kernels.
EXACT = Profile(exact_cache=True, flash_attention=False, repack=False)
# What llama.cpp does by itself.
FASTEST = Profile(exact_cache=False, flash_attention=True, repack=True)


class LlamaCpp:
    """A GGUF model loaded by llama.cpp on the CPU, with one slot.

    It is a Reader (see runtime/interface.py), but a slot can only be continued or begun again:
    llama.cpp forgets what has left the sliding window and cannot go back.
    """

    def __init__(self, model: Path, *, context: int, threads: int | None, profile: Profile) -> None:
        """Load a model for `context` positions; `threads` None takes every CPU that we may use.

        Raises LlamaError.
        """
        self._api = _import()
        self._context_size = context
        self._read = 0
        self._waiting: list[int] = []
        # The callback must live as long as the library may call it.
        self._messages: list[str] = []
        self._callback = self._api.llama_log_callback(self._log)
        self._api.llama_log_set(self._callback, ctypes.c_void_p(0))
        self._api.llama_backend_init()
        self._model = self._load(model, profile)
        self._context = self._open(model, threads or len(os.sched_getaffinity(0)), profile)
        self._memory = self._api.llama_get_memory(self._context)
        self._vocabulary = self._api.llama_model_get_vocab(self._model)

    @property
    def version(self) -> str:
        """The version of llama-cpp-python."""
        return str(self._api.__version__)

    @property
    def quantisation(self) -> str:
        """How llama.cpp calls the format of the file's weights, as Q8_0."""
        text = ctypes.create_string_buffer(_DESCRIPTION)
        self._api.llama_model_desc(self._model, text, _DESCRIPTION)
        return text.value.decode().split(" ", 2)[-1]  # behind the architecture and the size

    @property
    def weights_bytes(self) -> int:
        """The size of all weights, as they are in the file."""
        return int(self._api.llama_model_size(self._model))

    @property
    def vocab_size(self) -> int:
        """As Reader.vocab_size."""
        return int(self._api.llama_vocab_n_tokens(self._vocabulary))

    @property
    def context(self) -> int:
        """As Reader.context."""
        return self._context_size

    @property
    def slots(self) -> int:
        """As Reader.slots."""
        return 1

    @property
    def chunk(self) -> int:
        """As Reader.chunk."""
        return _CHUNK

    @property
    def batch(self) -> int:
        """As Reader.batch."""
        return 1

    def prefill(self, slot: int, tokens: Sequence[int], start: int) -> None:
        """As Reader.prefill; `start` is 0 or the next position.

        llama.cpp gives the logits of a batch with its last token, so the tokens wait for `decode`,
        to be read in one call with it, as long as a batch has room.
        """
        assert slot == 0, f"slot {slot}, of 1"
        here = self._read + len(self._waiting)
        assert start in (0, here), f"position {start}, wanted 0 or {here}"
        if start == 0:
            self._api.llama_memory_clear(self._memory, True)
            self._read = 0
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
        exact: Sequence[bool] = (),  # noqa: ARG002 - these always are
    ) -> NDArray[np.float32]:
        """As Reader.decode."""
        assert len(slots) == len(tokens) == 1, f"decode of {len(slots)} sequences, of 1"
        here = self._read + len(self._waiting)
        assert positions[0] in (0, here), f"position {positions[0]}, wanted 0 or {here}"
        if positions[0] == 0:
            self.prefill(slots[0], (), 0)
        self._submit([*self._waiting, *tokens])
        self._waiting = []
        return self._logits(-1)[None]

    def logits_after_each(self, tokens: Sequence[int], first: int) -> Iterator[NDArray[np.float32]]:
        """The logits (V,) after each of tokens[first - 1:], read from position 0 on.

        The same as a decode for each, many times as fast.
        """
        self.prefill(0, (), 0)
        silent = first - 1
        for start in range(0, silent, _CHUNK):
            self._submit(tokens[start : min(start + _CHUNK, silent)])
        for start in range(silent, len(tokens), _ROWS):
            part = tokens[start : start + _ROWS]
            self._submit(part, every=True)
            for row in range(len(part)):
                yield self._logits(row)

    def _logits(self, row: int) -> NDArray[np.float32]:
        """The logits (V,) after a token of the last batch, -1 being its last."""
        logits = self._api.llama_get_logits_ith(self._context, row)
        return np.array(np.ctypeslib.as_array(logits, (self.vocab_size,)))

    def _submit(self, tokens: Sequence[int], *, every: bool = False) -> None:
        """Read up to a chunk of tokens at the next positions; logits after the last or `every`."""
        ids = (self._api.llama_token * len(tokens))(*tokens)  # a batch only points at it
        batch = self._api.llama_batch_get_one(ids, len(tokens))
        if every:
            batch.logits = (ctypes.c_int8 * len(tokens))(*[1] * len(tokens))
        if self._api.llama_decode(self._context, batch) != 0:
            reason = self._last_message()
            raise LlamaError(
                f"llama.cpp cannot read {len(tokens)} tokens at {self._read}: {reason}"
            )
        self._read += len(tokens)

    def tokenize(self, text: str) -> tuple[int, ...]:
        """As Vocabulary.tokenize; special tokens in the text are plain text."""
        data = text.encode()
        room = len(data) + 2  # no token is shorter than a byte; <bos> and <eos> come on top
        ids = (self._api.llama_token * room)()
        count = self._api.llama_tokenize(self._vocabulary, data, len(data), ids, room, True, False)
        return tuple(ids[:count])

    def detokenize(self, token_ids: Sequence[int]) -> str:
        """As Vocabulary.detokenize; a broken character at the end becomes U+FFFD."""
        return b"".join(self._piece(token) for token in token_ids).decode(errors="replace")

    def close(self) -> None:
        """Free the model and its caches; nothing may be called afterwards."""
        self._api.llama_free(self._context)
        self._api.llama_model_free(self._model)

    def _piece(self, token: int) -> bytes:
        room = 256  # the longest token of a known vocabulary has fewer bytes
        text = ctypes.create_string_buffer(room)
        length = self._api.llama_token_to_piece(self._vocabulary, token, text, room, 0, True)
        if length < 0:
            raise LlamaError(f"token {token} has {-length} bytes, more than {room}")
        return text.raw[:length]

    def _load(self, model: Path, profile: Profile) -> Any:
        if not model.is_file():
            raise LlamaError(f"{model}: no such file, wanted a GGUF model")
        parameters = self._api.llama_model_default_params()
        parameters.use_extra_bufts = profile.repack
        loaded = self._api.llama_model_load_from_file(os.fsencode(model), parameters)
        if not loaded:
            raise LlamaError(f"llama.cpp cannot load {model}: {self._last_message()}")
        return loaded

    def _open(self, model: Path, threads: int, profile: Profile) -> Any:
        parameters = self._api.llama_context_default_params()
        parameters.n_ctx = self._context_size
        parameters.n_batch = parameters.n_ubatch = _CHUNK
        parameters.n_threads = parameters.n_threads_batch = threads
        # Sliding-window layers keep the window only, as llama-server does by default.
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
