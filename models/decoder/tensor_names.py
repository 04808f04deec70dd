"""Where the values of a model's parameters are in GGUF files and Hugging Face folders."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from itertools import accumulate, count, takewhile
from typing import TYPE_CHECKING, Any

from hearthd.models.decoder.config.gguf_metadata import ROPE_TABLES
from hearthd.models.program import StoredTensor, gguf_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from hearthd.models.config import ModelConfig

GGUF_NAMES: Mapping[str, str] = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.gate_proj": "attn_gate",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "per_layer_input_gate": "inp_gate",
    "per_layer_projection": "proj",
    "post_per_layer_input_norm": "post_norm",
    "layer_scalar": "layer_output_scale",
    "embed_tokens": "token_embd",
    "embed_tokens_per_layer": "per_layer_token_embd",
    "per_layer_model_projection": "per_layer_model_proj",
    "per_layer_projection_norm": "per_layer_proj_norm",
    "norm": "output_norm",
    "lm_head": "output",
}
# Of blocks with a norm after attention and one after the MLP, whatever they have before.
GGUF_NAMES_WITH_NORMS_AFTER: Mapping[str, str] = {
    **GGUF_NAMES,
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
QUERIES_AND_KEYS = ("self_attn.q_proj", "self_attn.k_proj")
# Not weights: tables of rotary frequencies. GgufMetadata checks that a GGUF file's are used.
_NOT_WEIGHTS = ("rotary_emb.inv_freq", *ROPE_TABLES)
EMBEDDING, HEAD = "embed_tokens.weight", "lm_head.weight"
# The parameters of a drafter, which have these names in its file.
DRAFTER_MODULE = "drafter"
# The parameters of a layer that predicts further tokens: its block is `mtp.layers.0`.
MTP_MODULE = "mtp"
_MTP_BLOCK = "layers.0."
_MTP_PREFIXES = ("mtp.", "model.mtp.")
_MTP_FOLDER_NAMES = {
    "proj": "fc",
    "token_norm": "pre_fc_norm_embedding",
    "state_norm": "pre_fc_norm_hidden",
}
_MTP_GGUF_NAMES = {
    "mtp.proj": "nextn.eh_proj",
    "mtp.token_norm": "nextn.enorm",
    "mtp.state_norm": "nextn.hnorm",
    "mtp.norm": "nextn.shared_head_norm",
}
_HEADS = (HEAD, *(f"{text}.{HEAD}" for text in ("language_model", "llm", "thinker")))
_NUMBER = "*"
_CHANNELS = 3


@dataclass(frozen=True, kw_only=True)
class GroupedRows:
    """A tensor whose rows are equal groups. Each has rows of some parts of a layer.

    folder  the tensor's name in Hugging Face folders, as `TensorNames.joined` has names, or empty
    gguf    its name in GGUF files, or empty
    parts   the parts, in the order of a group. Where a part occurs again, the rows of all groups
            follow the rows of its earlier occurrence in all groups
    shape   of a configuration: the number of groups, and the rows of each part in a group
    transposed  parts that have the rows of each group as columns
    """

    folder: str = ""
    gguf: str = ""
    parts: tuple[str, ...]
    shape: Callable[[Any], tuple[int, tuple[int, ...]]]
    transposed: tuple[str, ...] = ()

    def shares(self, config: ModelConfig, part: str) -> list[tuple[int, int, int]]:
        """Where the rows of a part are: see `StoredTensor.grouped`."""
        groups, widths = self.shape(config)
        ends = list(accumulate(widths))
        return [
            (groups, end - width, end)
            for name, width, end in zip(self.parts, widths, ends, strict=True)
            if name == part
        ]


QUERIES_KEYS_VALUES = tuple(f"self_attn.{part}_proj" for part in "qkv")


def _joined_heads(config: ModelConfig) -> tuple[int, tuple[int, ...]]:
    """One group: the rows of all queries, of all keys, and of all values."""
    width = config.head_dim
    return 1, (config.heads * width, config.kv_heads * width, config.kv_heads * width)


def _heads_by_key(config: ModelConfig) -> tuple[int, tuple[int, ...]]:
    """Key/value heads, and the rows of each: its queries, its keys and its values."""
    width, shared = config.head_dim, config.heads // config.kv_heads
    return config.kv_heads, (shared * width, width, width)


JOINED_HEADS = GroupedRows(gguf="attn_qkv", parts=QUERIES_KEYS_VALUES, shape=_joined_heads)


def heads_by_key(folder: str) -> GroupedRows:
    """A tensor of a folder where each key/value head follows its queries."""
    return GroupedRows(folder=folder, parts=QUERIES_KEYS_VALUES, shape=_heads_by_key)


@dataclass(frozen=True, kw_only=True)
class TensorNames:
    """The names of an architecture's tensors.

    gguf         GGUF's names for the parts of a layer, and for what is beside the layers
    gguf_prefix  what precedes all names in GGUF files
    interleaved  the parts of a layer whose rows GGUF files have in llama.cpp's order: it rotates
                 the pairs (2i, 2i + 1), and its converter puts them side by side. Here, as in
                 Hugging Face's files, a pair is (i, i + D / 2)
    head_width   the rows of a head of these parts, of a configuration; None: `head_dim`
    folder_interleaved, gguf_interleaved  which files have the rows of these parts in that order
    folder       names in Hugging Face folders of the parts of a layer, and of what is beside the
                 layers, where they differ from the model's own; or of one tensor. `*` stands for 0,
                 1, ...: the rows of the tensors that are numbered so follow each other
    layers       what precedes the number of a layer in Hugging Face folders
    prefixes     what may precede the names in Hugging Face folders; the first is the usual one
    norm_offset  is added to the weights of norms in Hugging Face folders: some norms multiply by
                 1 + w, and GGUF files store 1 + w
    offset_norms the end of the names of these weights
    channels_last  parameters beside the layers whose rows are pixels of three channels; in Hugging
                 Face folders the channels of a pixel are side by side
    logarithms   parts of a layer whose values -exp(x) Hugging Face folders have as x
    positive_logarithms  the same of exp(x)
    softplus     parameters of a layer whose values softplus(x) Hugging Face folders have as x
    masks        ends of the names of tensors that are causal masks, in older Hugging Face folders
    others       starts of the names, after a prefix, of tensors that Hearth does not run, such as a
                 vision tower
    optional     parts or parameters of a layer that files also hold of layers without them
    joined       names in Hugging Face folders of tensors that hold the rows of some parts of a
                 layer, as many of each, one part after the other; used where the part has no tensor
                 of its own
    joined_in_gguf  the same for names in GGUF files; a tensor can have the name of one of its parts
    grouped      tensors that hold the rows of parts of a layer in groups; used where they are there
    alternating  names among `joined` of tensors that hold the rows of their parts in turn; a bias
                 among them is (experts, outputs)
    transposed   parts of a layer, and names among `joined`, whose tensor is named without ".weight"
                 and holds rows as columns
    transposed_in_folder  ends of the names of other such parameters
    transposed_in_gguf  parts whose tensor in GGUF files holds rows as columns
    arrays       parameters of a layer, each a number, that GGUF files have by layer in the arrays
                 of these keys of their metadata
    towers       the names of the parameters of modules beside the text model, by module
    """

    gguf: Mapping[str, str] = field(default_factory=lambda: GGUF_NAMES)
    gguf_prefix: str = ""
    interleaved: tuple[str, ...] = ()
    head_width: Callable[[Any], int] | None = None
    folder_interleaved: bool = False
    gguf_interleaved: bool = True
    folder: Mapping[str, str] = field(default_factory=dict)
    layers: str = "layers"
    prefixes: tuple[str, ...] = ("model.", "")
    norm_offset: float = 0.0
    offset_norms: str = "norm.weight"
    channels_last: tuple[str, ...] = ()
    logarithms: tuple[str, ...] = ()
    positive_logarithms: tuple[str, ...] = ()
    softplus: tuple[str, ...] = ()
    masks: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    joined: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    joined_in_gguf: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    grouped: tuple[GroupedRows, ...] = ()
    alternating: tuple[str, ...] = ()
    transposed: tuple[str, ...] = ()
    transposed_in_folder: tuple[str, ...] = ()
    transposed_in_gguf: tuple[str, ...] = ()
    arrays: Mapping[str, str] = field(default_factory=dict)
    towers: Mapping[str, TensorNames] = field(default_factory=dict)

    def has_any(self, names: Collection[str], *, gguf: bool) -> bool:
        """Whether a file with tensors of these names has some of these, by their prefixes."""
        prefixes = self.gguf_prefix if gguf else self.prefixes
        return any(name.startswith(prefixes) for name in names)

    def find(
        self, config: ModelConfig, parameter: str, names: tuple[str, ...], *, gguf: bool
    ) -> StoredTensor:
        """Where a parameter is in a file with these tensor names."""
        module, _, inner = parameter.partition(".")
        if module in self.towers:
            return self.towers[module].find(config, inner, names, gguf=gguf)
        if module == DRAFTER_MODULE:
            return StoredTensor(parameter)
        if module == MTP_MODULE:
            return self._find_of_mtp(config, inner, names, gguf=gguf)
        width = self._interleaved(config, parameter.rpartition(".")[0], gguf=gguf)
        if gguf and parameter.split(".", 2)[-1] in self.arrays:
            _, number, inner = parameter.split(".", 2)
            return StoredTensor(self.arrays[inner], share=(int(number), config.layers))
        if gguf:
            name = self.gguf_prefix + gguf_name(parameter, self.gguf)
            transposed = parameter.rpartition(".")[0].endswith(self.transposed_in_gguf)
            return self._in_joined_gguf(name, names) or StoredTensor(
                name, interleaved=width, transposed=transposed
            )
        offset = self.norm_offset if parameter.endswith(self.offset_norms) else 0.0
        if parameter == HEAD:
            name = self._in_folder(HEAD)
            return StoredTensor(next((head for head in (name, *_HEADS) if head in names), name))
        path_in_folder = self._in_folder(parameter)
        present = [
            name
            for name in (prefix + path_in_folder for prefix in self.prefixes)
            if name.replace(_NUMBER, "0") in names
        ]
        if not present and (tensor := self._in_joined(parameter, names)):
            return tensor
        if not present and (tensor := self._in_transposed(parameter, names)):
            return tensor
        name = present[0] if present else self.prefixes[0] + path_in_folder
        module = parameter.rpartition(".")[0]
        sign = module.endswith(self.positive_logarithms) - module.endswith(self.logarithms)
        channels = _CHANNELS if parameter in self.channels_last else 0
        return StoredTensor(
            name,
            offset,
            width,
            logarithm=sign,
            softplus=parameter.endswith(self.softplus),
            transposed=parameter.endswith(self.transposed_in_folder),
            channels=channels,
        )

    def _interleaved(self, config: ModelConfig, module: str, *, gguf: bool) -> int:
        """`interleaved` of a module's tensor."""
        swapped = self.gguf_interleaved if gguf else self.folder_interleaved
        width = config.head_dim if self.head_width is None else self.head_width(config)
        return width if swapped and module.endswith(self.interleaved) else 0

    def _find_of_mtp(
        self, config: ModelConfig, inner: str, names: tuple[str, ...], *, gguf: bool
    ) -> StoredTensor:
        """As `find`, in the layer that predicts further tokens: in GGUF files, the last block."""
        if gguf:
            block = inner.removeprefix(_MTP_BLOCK)
            part = f"{MTP_MODULE}.{inner}" if block == inner else block
            named = replace(self, gguf={**self.gguf, **_MTP_GGUF_NAMES})
            return named.find(config, f"layers.{config.layers}.{part}", names, gguf=True)
        folder = {**self.folder, **_MTP_FOLDER_NAMES}
        named = replace(self, prefixes=_MTP_PREFIXES, folder=folder)
        return named.find(config, inner, names, gguf=False)

    def _in_joined(self, parameter: str, names: tuple[str, ...]) -> StoredTensor | None:
        """The tensor that joins the rows of a parameter with others, or None."""
        for joined, modules in self.joined.items():
            for number, module in enumerate(modules):
                if f".{module}." in parameter:
                    tensor = self._joined_tensor(parameter.replace(module, joined), joined, names)
                    if tensor is not None:
                        return replace(tensor, share=(number, len(modules)))
        return None

    def _joined_tensor(
        self, parameter: str, joined: str, names: tuple[str, ...]
    ) -> StoredTensor | None:
        """The tensor of a name of `joined`, if there is one."""
        alternates = joined in self.alternating
        inner = self._in_folder(parameter)
        for name in (prefix + inner for prefix in self.prefixes):
            if name in names:
                is_bias = alternates and parameter.endswith(".bias")
                columns = parameter.endswith(self.transposed_in_folder)
                return StoredTensor(
                    name, alternating=alternates, vectors=is_bias, transposed=columns
                )
        tensor = self._in_transposed(parameter, names)
        return tensor and replace(tensor, alternating=alternates)

    def _in_transposed(self, parameter: str, names: tuple[str, ...]) -> StoredTensor | None:
        """The tensor of a module's name that holds its matrices transposed, if there is one."""
        module, _, suffix = parameter.rpartition(".")
        if suffix == "weight" and module.endswith(self.transposed):
            inner = self._in_folder(parameter).removesuffix(".weight")
            for name in (prefix + inner for prefix in self.prefixes):
                if name in names:
                    return StoredTensor(name, transposed=True)
        return None

    def _in_joined_gguf(self, name: str, names: tuple[str, ...]) -> StoredTensor | None:
        """The tensor of a GGUF file that holds the rows of another one, if there is one."""
        for joined, parts in self.joined_in_gguf.items():
            for number, part in enumerate(parts):
                stored = name.replace(f".{part}.", f".{joined}.")
                rest = [name.replace(f".{part}.", f".{other}.") for other in parts]
                is_joined = not {*rest, name}.difference([stored]).intersection(names)
                if f".{part}." in name and stored in names and is_joined:
                    return StoredTensor(stored, share=(number, len(parts)))
        return None

    def parts(
        self, config: ModelConfig, parameter: str, names: tuple[str, ...], *, gguf: bool
    ) -> tuple[StoredTensor, ...]:
        """The tensors that a parameter's rows come from, at least one: see `find` and `folder`."""
        module, _, inner = parameter.partition(".")
        if module in self.towers:
            return self.towers[module].parts(config, inner, names, gguf=gguf)
        if tensors := self._in_groups(config, parameter, names, gguf=gguf):
            return tensors
        tensor, present = self.find(config, parameter, names, gguf=gguf), set(names)
        if _NUMBER not in tensor.name:
            return (tensor,)
        numbered = (
            replace(tensor, name=tensor.name.replace(_NUMBER, str(number))) for number in count()
        )
        first = next(numbered)
        return (first, *takewhile(lambda tensor: tensor.name in present, numbered))

    def of_mtp(self, names: Collection[str], *, gguf: bool) -> set[str]:
        """The tensors of layers that predict further tokens in a file with these names."""
        prefixes = tuple(_predicting_layers(names)) if gguf else _MTP_PREFIXES
        return {name for name in names if name.startswith(prefixes)}

    def _in_groups(
        self, config: ModelConfig, parameter: str, names: tuple[str, ...], *, gguf: bool
    ) -> tuple[StoredTensor, ...]:
        """The tensor in whose groups a parameter's rows are, once for each place in a group."""
        suffix = ".bias" if parameter.endswith(".bias") else ".weight"
        path = parameter.removesuffix(suffix)
        layer = next(iter(re.findall(r"^layers\.\d+\.", path)), "")
        part = path.removeprefix(layer)
        for tensor in self.grouped:
            if part in tensor.parts:
                in_folder = self._in_folder(f"{layer}{tensor.folder}{suffix}")
                in_gguf = f"{layer.replace('layers', 'blk')}{tensor.gguf}{suffix}"
                prefixes = (self.gguf_prefix,) if gguf else self.prefixes
                stored = (prefix + (in_gguf if gguf else in_folder) for prefix in prefixes)
                for name in (name for name in stored if name in names):
                    return tuple(
                        StoredTensor(
                            name,
                            interleaved=self._interleaved(config, path, gguf=gguf),
                            grouped=share,
                            transposed=part in tensor.transposed,
                            vectors=suffix == ".bias",
                        )
                        for share in tensor.shares(config, part)
                    )
        return ()

    def _in_folder(self, parameter: str) -> str:
        path, _, suffix = parameter.rpartition(".")
        layer = ""
        if path.startswith("layers."):
            _, number, path = path.split(".", 2)
            layer = f"{self.layers}.{number}."
        name = f"{self.folder.get(path, path)}.{suffix}"
        return layer + self.folder.get(f"{path}.{suffix}", name)

    def is_other_part(self, tensor: str, names: Collection[str] = ()) -> bool:
        """Whether a tensor that no parameter was found in may be left out, of a file with `names`.

        A drafter's are, by a program that drafts nothing, and a layer's that predicts further
        tokens. A head beside a tied table is a copy of it: baker/pipeline/recipe.py compares them.
        """
        others = tuple(prefix + other for prefix in self.prefixes for other in self.others)
        files: list[Mapping[str, str]] = [{}, self.gguf, self.folder]
        optional = tuple(f".{file.get(part, part)}" for part in self.optional for file in files)
        return (
            tensor in _HEADS
            or tensor.endswith((*_NOT_WEIGHTS, *self.masks))
            or any(name.endswith(optional) for name in (tensor, tensor.rpartition(".")[0]))
            or tensor.startswith((f"{DRAFTER_MODULE}.", *others, *_predicting_layers(names)))
        )


def _predicting_layers(names: Collection[str]) -> set[str]:
    """The starts of the names of layers that predict further tokens."""
    parts = ("nextn.", "eh_proj.")
    return {name.partition(part)[0] for part in parts for name in names if f".{part}" in name}
