// Factors B of adapters, int8: their terms are added to rows of f32.
#ifndef HEARTH_ADAPTER_TERMS_H
#define HEARTH_ADAPTER_TERMS_H

#include "lora/adapters.h"
#include "product/activations.h"

// The largest rank.
enum { MAX_RANK = 64 };
// Blocks whose factors are fetched ahead.
enum { BLOCKS_AHEAD = 8 };

// The terms of a matrix in 16 bits: scale * (q[0] + q[1] / TERM_STEPS). A product of integers
// starts at `start`.
typedef struct {
    _Alignas(64) int8_t q[MAX_PARTS][MAX_RANK];
    int32_t start[MAX_PARTS];
    float scale;
} Terms;

static const float TERM_STEPS = 254;

INLINE void store_bytes(int8_t *to, f32x16 integers) {
    i8x16 bytes = __builtin_convertvector(__builtin_convertvector(integers, i32x16), i8x16);
    __builtin_memcpy(to, &bytes, sizeof bytes);
}

INLINE void quantize_terms(Terms *to, const float *from, size_t rank) {
    f32x16 magnitudes = {}, sums[MAX_PARTS] = {};
    for (size_t i = 0; i < rank; i += LANES)
        magnitudes = __builtin_elementwise_max(
            magnitudes, __builtin_elementwise_abs(load_part(from + i, rank - i)));
    float top = largest(magnitudes) + 0x1p-100f, inverse = 127.0f / top;
    to->scale = top * (1.0f / 127.0f);
    for (size_t i = 0; i < rank; i += LANES) {
        f32x16 scaled = load_part(from + i, rank - i) * inverse;
        f32x16 first = __builtin_elementwise_roundeven(scaled);
        f32x16 second = __builtin_elementwise_roundeven((scaled - first) * TERM_STEPS);
        store_bytes(to->q[0] + i, first);
        store_bytes(to->q[1] + i, second);
        sums[0] += first, sums[1] += second;
    }
    for (int part = 0; part < MAX_PARTS; part++) {
        float total = sum(sums[part]);
        if (total != total) total = 0;  // NaN has no integer
        to->start[part] = (int32_t)total * -DOT_OFFSET;
    }
}

// Adds to `width` of sixteen outputs, of `count` rows: scale * (terms times b), where each output's
// products are also multiplied by its scale in `b_scale`.
INLINE void add_block(const Terms *terms, int count, const int8_t *b, const _Float16 *b_scale,
                      size_t quads, float scale, float *out, size_t outputs, size_t width) {
    i32x16 dots[SEQUENCE_ROWS][MAX_PARTS];
#pragma clang loop unroll(full)
    for (int row = 0; row < count; row++)
        for (int part = 0; part < MAX_PARTS; part++)
            dots[row][part] = (i32x16){} + terms[row].start[part];
    for (size_t quad = 0; quad < quads; quad++) {
        Quad four;
        __builtin_memcpy(&four, b + quad * sizeof four, sizeof four);
#pragma clang loop unroll(full)
        for (int row = 0; row < count; row++)
            for (int part = 0; part < MAX_PARTS; part++)
                dots[row][part] = dot_quad(dots[row][part], four, terms[row].q[part] + quad * QUAD);
    }
    f32x16 scales = widen(b_scale);
#pragma clang loop unroll(full)
    for (int row = 0; row < count; row++) {
        f32x16 products =
            fma16(__builtin_convertvector(dots[row][1], f32x16), splat(1 / TERM_STEPS),
                  __builtin_convertvector(dots[row][0], f32x16));
        float *to = out + (size_t)row * outputs;
        f32x16 factors = splat(terms[row].scale * scale);
        store_part(to, fma16(products * scales, factors, load_part(to, width)), width);
    }
}

// Adds to the outputs of some blocks of one matrix, of `count` rows.
INLINE void add_blocks(const Terms *terms, int count, const int8_t *b, const _Float16 *b_scale,
                       size_t quads, float scale, float *out, size_t outputs, size_t width) {
    for (size_t at = 0; at < width; at += LANES) {
        fetch_soon(b + BLOCKS_AHEAD * quads * sizeof(Quad), quads * sizeof(Quad));
        fetch_soon(b_scale + BLOCKS_AHEAD * LANES, LANES * sizeof *b_scale);
        add_block(terms, count, b, b_scale, quads, scale, out + at, outputs, width - at);
        b += quads * sizeof(Quad), b_scale += LANES;
    }
}

// As `add_blocks`, for rows from `terms`, f32 (rows, stride), on.
INLINE void add_terms(const float *terms, size_t stride, int count, const int8_t *b,
                      const _Float16 *b_scale, size_t rank, float scale, float *out, size_t outputs,
                      size_t width) {
    Terms some[SEQUENCE_ROWS];
    for (int row = 0; row < count; row++) quantize_terms(&some[row], terms + row * stride, rank);
    if (rank == LANES)
        add_blocks(some, count, b, b_scale, LANES / QUAD, scale, out, outputs, width);
    else
        add_blocks(some, count, b, b_scale, rank / QUAD, scale, out, outputs, width);
}

// The terms of all rows, f32 (rows, stride), and the factors B and scales of all places. The terms
// of the first matrix start at `first`.
typedef struct {
    Places places;
    const float *terms, *scales;
    const int8_t *b;
    const _Float16 *b_scale;
    const size_t *sources;
    size_t blocks, stride, first, rank;
} Adapters;

// The arrays and sizes of `Adapters` as arguments of a kernel: terms f32 (rows, stride), chosen i32
// and scales f32 (sequences,), b (places, blocks, rank / 4, 64), b_scale f16 (places, blocks, 16).
#define ADAPTER_ARRAYS                                                            \
    const float *terms, size_t terms_at, const int32_t *chosen, size_t chosen_at, \
        const float *scales, size_t scales_at, const int8_t *b, size_t b_at,      \
        const _Float16 *b_scale, size_t b_scale_at
#define ADAPTER_SIZES                                                                 \
    size_t rows_per_sequence, size_t stride, size_t first, size_t rank, size_t count, \
        size_t rows0, size_t rows1, size_t rows2, size_t rows3
#define ADAPTERS(sources)                            \
    {{chosen + chosen_at, rows_per_sequence, count}, \
     terms + terms_at,                               \
     scales + scales_at,                             \
     b + b_at,                                       \
     b_scale + b_scale_at,                           \
     sources,                                        \
     count_blocks(sources),                          \
     stride,                                         \
     first,                                          \
     rank}

// The index of a place's block among the blocks of all places; places count from 1.
INLINE size_t stored_block(const Adapters *from, size_t place, size_t block) {
    return (place - 1) * from->blocks + block;
}

// Adds the terms of the rows `row` to `last` to the blocks `begin` to `end` of out, f32 (rows,
// outputs).
INLINE void add_adapters(const Adapters *from, size_t row, size_t last, size_t begin, size_t end,
                         float *out, size_t outputs) {
    size_t rank = from->rank;
    for (size_t together; row < last; row += together) {
        size_t place = place_of(from->places, row);
        together = rows_together(from->places, row, last);
        if (!place) continue;
        float scale = from->scales[row / from->places.each];
        Blocks some;
        for (size_t block = begin; block < end; block = some.end) {
            some = blocks_from(from->sources, block, end);
            size_t stored = stored_block(from, place, block);
            size_t width = least((some.end - block) * LANES, some.last - some.first);
            const float *terms =
                from->terms + row * from->stride + from->first + some.source * rank;
            const int8_t *b = from->b + stored * rank * LANES;
            const _Float16 *b_scale = from->b_scale + stored * LANES;
            float *to = out + row * outputs + some.first;
            if (together == SEQUENCE_ROWS)
                add_terms(terms, from->stride, SEQUENCE_ROWS, b, b_scale, rank, scale, to, outputs,
                          width);
            else
                add_terms(terms, from->stride, 1, b, b_scale, rank, scale, to, outputs, width);
        }
    }
}

#endif
