"""Makes random programs by rules: each adds one step, and the inputs that it needs."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, TypeAlias

from hearthd.models.dsl.types import DType, TensorType
from tools.fuzz.compiled.program_maker import MAX_STEPS, Maker
from tools.fuzz.compiled.programs import Program

if TYPE_CHECKING:
    from collections.abc import Callable

_Rule: TypeAlias = "Callable[[Maker], bool]"


# A value has 2 dispatches, a gradient 5, and a loss with its gradients 9, which take 40 ms each.
_FORMS = (*("value", "gradient") * 7, "value", "loss")


def make(seed: int) -> Program:
    """The program of a seed."""
    random = Random(seed)
    maker = Maker(random)
    # Mostly short ones: more of them run in an hour.
    length = random.choice((1, 1, 1, 1, 2, 2, 2, 2, 3, 3, random.randint(4, MAX_STEPS)))
    rules, weights = zip(*RULES.items(), strict=True)
    for _ in range(8 * length):
        before = len(maker.steps)
        if not random.choices(rules, weights)[0](maker):
            del maker.steps[before:], maker.tensors[before:]
        if sum(step.name != "input" for step in maker.steps) >= length:
            break
    return Program(tuple(maker.steps), seed, _FORMS[seed % len(_FORMS)])


_UNARY = (
    "negate exponential exponential_minus_one log tanh sine cosine sqrt absolute sign erf floor "
    "round barrier relu leaky_relu elu gelu gelu_tanh silu sigmoid log2"
).split()


def _unary(maker: Maker) -> bool:
    return maker.add(maker.random.choice(_UNARY), maker.pick())


def _number(maker: Maker) -> bool:
    operator, value = maker.random.choice(
        [("+", 1.5), ("*", -0.5), ("*", 3.0), ("-", 2.0), ("/", 2.0)]
        + [("**", power) for power in (-3.0, -2.0, -1.0, 0.5, 2.0, 3.0, 4.0, 5.0)]
    )
    return maker.add("with_number", maker.pick(), operator=operator, value=value)


def _binary(maker: Maker) -> bool:
    names = ("add", "subtract", "multiply", "maximum", "minimum", "remainder", "divide", "power")
    x = maker.pick(number=True)
    is_float = maker.tensors[x].dtype.is_float
    name = maker.random.choice(names if is_float else names[:6])
    return maker.add(name, x, maker.like(x))


def _bits(maker: Maker) -> bool:
    shape = maker.shape(2)
    x, y = maker.input(shape, "i32"), maker.input(shape, "i32", "indices", 31)
    names = ("bitwise_and", "bitwise_or", "shift_left", "shift_right")
    return maker.add(maker.random.choice(names), x, y)


def _compare(maker: Maker) -> bool:
    x = maker.pick(number=True)
    direction = maker.random.choice(("EQ", "NE", "LT", "LE", "GT", "GE"))
    return maker.add("compare", x, maker.like(x), direction=direction)


def _select(maker: Maker) -> bool:
    masks = [i for i, tensor in enumerate(maker.tensors) if tensor.dtype is DType.BOOL]
    x = maker.pick(number=True)
    shape = maker.tensors[x].shape
    masks = [i for i in masks if maker.tensors[i].shape == shape]
    if masks and maker.random.random() < 0.7:
        mask = maker.random.choice(masks)
    elif shape and maker.random.random() < 0.5:
        axis = maker.axis(x)
        row_mask = maker.input((shape[axis],), "bool")
        if not maker.add("broadcast", row_mask, shape=list(shape), axes=[axis]):
            return False
        mask = len(maker.steps) - 1
    else:
        mask = maker.input(shape, "bool")
    return maker.add("select", mask, x, maker.like(x))


def _convert(maker: Maker) -> bool:
    x = maker.random.randrange(len(maker.tensors)) if maker.tensors else maker.pick()
    return maker.add("convert", x, dtype=maker.random.choice(("f32", "f32", "bf16", "f16", "i32")))


def _reduce(maker: Maker) -> bool:
    x = maker.pick(1)
    name = maker.random.choice(("reduce_sum", "reduce_sum", "reduce_max", "mean", "variance"))
    return maker.add(name, x, axes=maker.axes(x))


def _along_axis(maker: Maker) -> bool:
    x = maker.pick(1)
    name = maker.random.choice(("softmax", "softmax", "log_softmax", "argmax"))
    return maker.add(name, x, axis=maker.axis(x))


def _norm(maker: Maker) -> bool:
    x = maker.pick(2)
    shape = maker.tensors[x].shape
    last, channels = shape[-1], shape[1]
    match maker.random.randrange(4):
        case 0:
            return maker.add("rms_norm", x, maker.float_like(x, last), eps=1e-3)
        case 1:
            return maker.add("layer_norm", x, maker.float_like(x, last), eps=1e-3)
        case 2:
            groups = maker.random.choice([g for g in range(1, channels + 1) if channels % g == 0])
            return maker.add("group_norm", x, groups=groups, eps=1e-3)
    statistics = maker.input((channels,), maker.tensors[x].dtype.label, "positive")
    return maker.add("batch_norm", x, maker.float_like(x, channels), statistics, eps=1e-3)


def _reshape(maker: Maker) -> bool:
    x = maker.pick(number=True)
    size, shape = maker.tensors[x].type.size, []
    for _ in range(maker.random.randint(0, 3)):
        divisors = [d for d in range(1, size + 1) if size % d == 0]
        shape.append(maker.random.choice(divisors))
        size //= shape[-1]
    return maker.add("reshape", x, shape=[*shape, size])


def _split_rows(maker: Maker) -> bool:
    """(B M, K) to (B, M, K), or the other way."""
    x = maker.pick(2)
    shape = maker.tensors[x].shape
    if maker.random.random() < 0.5 and len(shape) > 2:
        return maker.add("reshape", x, shape=[shape[0] * shape[1], *shape[2:]])
    parts = maker.random.choice([d for d in range(1, shape[0] + 1) if shape[0] % d == 0])
    return maker.add("reshape", x, shape=[parts, shape[0] // parts, *shape[1:]])


def _transpose(maker: Maker) -> bool:
    x = maker.pick(2, number=True)
    order = list(range(maker.tensors[x].type.rank))
    maker.random.shuffle(order)
    return maker.add("transpose", x, order=order)


def _broadcast(maker: Maker) -> bool:
    x = maker.pick(0, 3, number=True)
    shape = list(maker.tensors[x].shape)
    rank = len(shape) + maker.random.randint(0, 4 - len(shape))
    axes = sorted(maker.random.sample(range(rank), len(shape)))
    extents = [maker.extent() for _ in range(rank)]
    for axis, extent in zip(axes, shape, strict=True):
        if extent > 1 or maker.random.random() < 0.5:
            extents[axis] = extent
    return maker.add("broadcast", x, shape=extents, axes=axes)


def _slice(maker: Maker) -> bool:
    x = maker.pick(1, number=True)
    bounds = []
    for extent in maker.tensors[x].shape:
        start = maker.random.randrange(extent) if maker.random.random() < 0.5 else 0
        stop = maker.random.randint(start + 1, extent) if maker.random.random() < 0.5 else extent
        bounds.append([start, stop, maker.random.choice((1, 1, 2, 3))])
    return maker.add("slice", x, bounds=bounds)


def _pad(maker: Maker) -> bool:
    x = maker.pick(1)
    padding = [
        [maker.random.choice((0, 0, 1, 3)) for _ in range(3)] for _ in maker.tensors[x].shape
    ]
    return maker.add("pad", x, padding=padding)


def _join(maker: Maker) -> bool:
    x = maker.pick(1, number=True)
    match maker.random.randrange(4):
        case 0:
            return maker.add("stack", x, maker.like(x), axis=maker.axis(x))
        case 1:
            return maker.add("reverse", x, axes=maker.axes(x))
        case 2:
            return maker.add(
                "unfold", x, axis=maker.axis(x), size=2, step=maker.random.choice((1, 2))
            )
    return maker.add("concatenate", x, maker.like(x), axis=maker.axis(x))


def _tril(maker: Maker) -> bool:
    return maker.add("tril", maker.pick(2), diagonal=maker.random.randint(-1, 2))


def _rows(maker: Maker) -> bool:
    """Gather or scatter."""
    x = maker.pick(1)
    shape, dtype = maker.tensors[x].shape, maker.tensors[x].dtype.label
    count = maker.random.randint(1, 6)
    if maker.random.random() < 0.6:
        axis = maker.axis(x)
        picks = (count,) if maker.random.random() < 0.7 else (2, count)
        indices = maker.input(picks, "i32", "indices", shape[axis])
        return maker.add("gather", x, indices, axis=axis)
    count = min(count, shape[0])
    combine = maker.random.choice(("add", "replace"))
    fill = "distinct" if combine == "replace" else "indices"
    indices = maker.input((count,), "i32", fill, shape[0])
    updates = maker.input((count, *shape[1:]), dtype)
    return maker.add("scatter", x, indices, updates, combine=combine)


def _dot_general(maker: Maker) -> bool:
    """Any axes as batch, contracted or free ones, on both sides."""
    x = maker.pick(2)
    left_shape, dtype = maker.tensors[x].shape, maker.tensors[x].dtype.label
    axes = list(range(len(left_shape)))
    maker.random.shuffle(axes)
    batches = maker.random.randint(0, max(0, len(left_shape) - 2))
    batch, (contract, *_) = axes[:batches], axes[batches:]
    free = [maker.extent() for _ in range(maker.random.choice((0, 1, 1, 1, 2)))]
    right = [("b", i, left_shape[i]) for i in batch] + [("c", contract, left_shape[contract])]
    right += [("f", 0, extent) for extent in free]
    maker.random.shuffle(right)
    right_batch = [next(j for j, axis in enumerate(right) if axis[:2] == ("b", i)) for i in batch]
    right_contract = next(j for j, axis in enumerate(right) if axis[0] == "c")
    shape = tuple(axis[2] for axis in right)
    same = [i for i, tensor in enumerate(maker.tensors) if tensor.type == TensorType(
        shape, DType.named(dtype))]  # fmt: skip
    y = maker.random.choice(same) if same else maker.input(shape, dtype)
    pair, sides = (x, y), ([batch, right_batch], [[contract], [right_contract]])
    if maker.random.random() < 0.5:  # what is computed is on the right
        pair, sides = (y, x), (sides[0][::-1], sides[1][::-1])
    accumulated = dtype if dtype == "f64" else "f32"
    return maker.add("dot_general", *pair, batch=sides[0], contract=sides[1], dtype=accumulated)


def _matmul(maker: Maker) -> bool:
    x = maker.pick(2, 3)
    shape = maker.tensors[x].shape
    width = maker.extent()
    if maker.random.random() < 0.5:
        return maker.add("linear", x, maker.float_like(x, width, shape[-1]))
    leading = shape[:-2] if maker.random.random() < 0.5 else ()
    return maker.add("matmul", x, maker.float_like(x, *leading, shape[-1], width))


def _attention(maker: Maker) -> bool:
    """Heads, groups and tokens of any number; at times the query is computed."""
    random = maker.random
    batch, groups, group_heads = random.randint(1, 2), random.randint(1, 4), random.randint(1, 3)
    tokens, keys, width = maker.extent(), maker.extent(), random.choice((1, 2, 4, 5, 8))
    query = (batch, tokens, groups * group_heads, width)
    places = [
        i
        for i, tensor in enumerate(maker.tensors)
        if tensor.type.rank == 4 and tensor.dtype.is_float
    ]
    if places and random.random() < 0.5:
        q = random.choice(places)
        batch, tokens, heads, width = maker.tensors[q].shape
        groups = random.choice([g for g in range(1, heads + 1) if heads % g == 0])
    else:
        q = maker.input(query, fill="normal")
    dtype = maker.tensors[q].dtype.label
    k = maker.input((batch, keys, groups, width), dtype, "normal")
    v = maker.input((batch, keys, groups, random.randint(1, 5)), dtype, "normal")
    mask = random.choice(
        [(keys,), (1, keys), (tokens, keys), (1, 1, 1, keys), (batch, 1, tokens, keys)]
    )
    match random.randrange(4):
        case 0:
            return maker.add("attention", q, k, v)
        case 1:
            return maker.add("attention_seen", q, k, v, maker.input(mask, "bool"))
        case 2:
            return maker.add("attention_mask", q, k, v, maker.input(mask, dtype, "normal"))
    return maker.add("causal_attention", q, k, v)


def _rotary(maker: Maker) -> bool:
    if maker.random.random() < 0.4:
        positions = maker.input((maker.extent(),), "i32", "indices", 1 << 17)
        return maker.add("rope_table", positions, width=8, part=maker.random.randrange(2))
    x = maker.pick(3, 3)
    tokens, _, width = maker.tensors[x].shape
    if width < 2:
        return False
    half = maker.random.randint(1, width // 2)
    return maker.add("rope", x, *(maker.float_like(x, tokens, half) for _ in range(2)))


def _convolution(maker: Maker) -> bool:
    random = maker.random
    spatial = random.choice((1, 1, 2))
    x = maker.pick(2 + spatial, 2 + spatial)
    channels, extents = maker.tensors[x].shape[1], maker.tensors[x].shape[2:]
    groups = random.choice([g for g in range(1, channels + 1) if channels % g == 0])
    kernel = [random.randint(1, min(3, extent)) for extent in extents]
    weight = maker.float_like(x, groups * random.randint(1, 4), channels // groups, *kernel)
    return maker.add(
        "padded_convolution",
        x,
        weight,
        stride=random.choice((1, 1, 2, 3)),
        padding=random.choice((0, 0, 1)),
        groups=groups,
    )


def _image(maker: Maker) -> bool:
    x = maker.pick(2)
    if maker.random.random() < 0.4:
        names = ("upsample2d_bilinear", "upsample2d_nearest")
        return maker.add(maker.random.choice(names), x, scale=maker.random.choice((2, 3)))
    name = maker.random.choice(("max_pool2d", "avg_pool2d"))
    size = maker.random.choice((1, 2, 3))
    if min(maker.tensors[x].shape[-2:]) < size:
        return False
    return maker.add(name, x, size=size, stride=maker.random.choice((1, 2)))


def _loss(maker: Maker) -> bool:
    x = maker.pick(2, 2)
    rows, columns = maker.tensors[x].shape
    if maker.random.random() < 0.5:
        return maker.add("mean_squared_error", x, maker.like(x))
    return maker.add("cross_entropy", x, maker.input((rows,), "i32", "indices", columns))


def _loop(maker: Maker) -> bool:
    x = maker.pick(2)
    shape, dtype = maker.tensors[x].shape, maker.tensors[x].dtype.label
    h, w = (maker.input(shape[1:], dtype) for _ in range(2))
    keep = maker.random.choice(("all", "last"))
    return maker.add("scan_tanh", h, x, w, reverse=maker.random.random() < 0.5, keep=keep)


def _gru(maker: Maker) -> bool:
    x = maker.pick(2, 2)
    (batch, inputs), hidden = maker.tensors[x].shape, maker.random.randint(1, 8)
    shapes = ((batch, hidden), (3 * hidden, inputs), (3 * hidden, hidden))
    return maker.add("gru_cell", x, *(maker.float_like(x, *shape) for shape in shapes))


RULES: dict[_Rule, float] = {
    _unary: 4,
    _number: 2,
    _binary: 4,
    _bits: 0.3,
    _compare: 1,
    _select: 1.5,
    _convert: 1.5,
    _reduce: 3,
    _along_axis: 3,
    _norm: 2,
    _reshape: 2,
    _split_rows: 2,
    _transpose: 2,
    _broadcast: 2,
    _slice: 1.5,
    _pad: 1,
    _join: 2,
    _tril: 0.5,
    _rows: 2,
    _dot_general: 5,
    _matmul: 3,
    _attention: 2.5,
    _rotary: 1,
    _convolution: 1.5,
    _image: 1,
    _loss: 0.7,
    _loop: 0.3,
    _gru: 0.5,
}
