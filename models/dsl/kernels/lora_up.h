// Rows of f32 plus the terms of their adapters times the factors B: op `lora_up`. Each type of
// factors has a file, which says NAME, Value and load_value, and SCALED if each output has a scale.
#include "adapters.h"

// Matrices whose rows follow each other.
enum { SOURCES = 4 };
// Blocks whose factors are fetched ahead.
enum { BLOCKS_AHEAD = 4 };

// Sixteen outputs, of which `width` exist, of `count` rows: y + scale * (terms times b). The
// products with each output are also multiplied by its scale in `b_scale`, unless that is 0.
INLINE void add_terms(const float *y, const float *terms, size_t stride, int count, const Value *b,
                      const float *b_scale, size_t rank, float scale, float *out, size_t outputs,
                      size_t width) {
    f32x16 sums[TOGETHER] = {};
    fetch_soon(b + BLOCKS_AHEAD * rank * LANES, rank * LANES * sizeof(Value));
    for (size_t term = 0; term < rank; term++) {
        f32x16 factors = load_value(b + term * LANES);
        for (int row = 0; row < count; row++)
            sums[row] = fma16(factors, splat(terms[(size_t)row * stride + term]), sums[row]);
    }
    for (int row = 0; row < count; row++) {
        if (b_scale) sums[row] *= load(b_scale);
        f32x16 before = load_part(y + (size_t)row * outputs, width);
        store_part(out + (size_t)row * outputs, fma16(sums[row], splat(scale), before), width);
    }
}

// A block of sixteen outputs: its matrix, its first output and the number of those that exist.
typedef struct {
    size_t source, output, width;
} Block;

// Blocks do not reach over the end of a matrix.
INLINE Block block_at(const size_t sources[SOURCES], size_t block) {
    size_t output = 0;
    for (size_t source = 0; source < SOURCES; source++) {
        size_t blocks = (sources[source] + LANES - 1) / LANES, at = block * LANES;
        if (block < blocks) return (Block){source, output + at, least(LANES, sources[source] - at)};
        block -= blocks, output += sources[source];
    }
    return (Block){0, 0, 0};
}

// y f32 (rows, outputs), terms f32 (rows, stride), chosen i32 and scales f32 (sequences,), b
// (places, blocks, rank, 16), b_scale f32 (places, blocks, 16), out f32 (rows, outputs); the terms
// of the first matrix start at `first`. A workgroup computes `blocks_each` blocks of `rows_each`
// rows.
int NAME(const float *y, size_t y_at, const float *terms, size_t terms_at, const int32_t *chosen,
         size_t chosen_at, const float *scales, size_t scales_at, const Value *b, size_t b_at,
#ifdef SCALED
         const float *b_scale, size_t b_scale_at,
#endif
         float *out, size_t out_at, size_t workgroup, size_t rows_each, size_t blocks_each,
         size_t rows_per_sequence, size_t rows, size_t outputs, size_t stride, size_t first,
         size_t rank, size_t count, size_t rows0, size_t rows1, size_t rows2, size_t rows3) {
#ifdef SCALED
    b_scale += b_scale_at;
#else
    const float *b_scale = 0;
#endif
    const size_t sources[SOURCES] = {rows0, rows1, rows2, rows3};
    size_t blocks = 0;
    for (int i = 0; i < SOURCES; i++) blocks += (sources[i] + LANES - 1) / LANES;
    size_t parts = (blocks + blocks_each - 1) / blocks_each;
    size_t begin = workgroup % parts * blocks_each, end = least(begin + blocks_each, blocks);
    size_t row = workgroup / parts * rows_each, last = least(row + rows_each, rows);
    Places places = {chosen + chosen_at, rows_per_sequence, count};
    y += y_at, terms += terms_at + first, scales += scales_at, b += b_at, out += out_at;
    for (size_t together; row < last; row += together) {
        size_t place = place_of(places, row);
        together = rows_together(places, row, last);
        float scale = scales[row / rows_per_sequence];
        for (size_t at = begin; at < end; at++) {
            Block block = block_at(sources, at);
            const float *from = y + row * outputs + block.output;
            const float *factors = terms + row * stride + block.source * rank;
            size_t stored = (place ? place - 1 : 0) * blocks + at;
            const Value *own = b + stored * rank * LANES;
            const float *factor = b_scale ? b_scale + stored * LANES : 0;
            float *to = out + row * outputs + block.output;
            if (!place)
                for (size_t i = 0; i < together; i++)
                    store_part(to + i * outputs, load_part(from + i * outputs, block.width),
                               block.width);
            else if (together == TOGETHER)
                add_terms(from, factors, stride, TOGETHER, own, factor, rank, scale, to, outputs,
                          block.width);
            else
                add_terms(from, factors, stride, 1, own, factor, rank, scale, to, outputs,
                          block.width);
        }
    }
    return 0;
}
