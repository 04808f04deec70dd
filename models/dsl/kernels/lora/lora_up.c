// Rows of f32 plus the terms of their adapters times the factors B, floats: op `lora_up`. A variant
// for a type of factors defines NAME, Value and load_value.
#include "lora/adapters.h"

// Blocks whose factors are fetched ahead.
enum { BLOCKS_AHEAD = 4 };

// Adds scale * (terms times b) to sixteen outputs of `count` rows; `width` outputs exist.
INLINE void add_terms(const float *terms, size_t stride, int count, const Value *b, size_t rank,
                      float scale, float *out, size_t outputs, size_t width) {
    f32x16 sums[SEQUENCE_ROWS] = {};
    fetch_soon(b + BLOCKS_AHEAD * rank * LANES, rank * LANES * sizeof(Value));
    for (size_t term = 0; term < rank; term++) {
        f32x16 factors = load_value(b + term * LANES);
        for (int row = 0; row < count; row++)
            sums[row] = fma16(factors, splat(terms[(size_t)row * stride + term]), sums[row]);
    }
    for (int row = 0; row < count; row++) {
        float *to = out + (size_t)row * outputs;
        store_part(to, fma16(sums[row], splat(scale), load_part(to, width)), width);
    }
}

// terms f32 (rows, stride), chosen i32 and scales f32 (sequences,), b (places, blocks, rank, 16),
// out f32 (rows, outputs), which is added to; the terms of the first matrix start at `first`. A
// workgroup computes `blocks_each` blocks of `rows_each` rows.
int NAME(const float *terms, size_t terms_at, const int32_t *chosen, size_t chosen_at,
         const float *scales, size_t scales_at, const Value *b, size_t b_at, float *out,
         size_t out_at, size_t workgroup, size_t rows_each, size_t blocks_each, size_t rows,
         size_t outputs, size_t rows_per_sequence, size_t stride, size_t first, size_t rank,
         size_t count, size_t rows0, size_t rows1, size_t rows2, size_t rows3) {
    const size_t sources[SOURCES] = {rows0, rows1, rows2, rows3};
    size_t blocks = count_blocks(sources), parts = (blocks + blocks_each - 1) / blocks_each;
    size_t begin = workgroup % parts * blocks_each, end = least(begin + blocks_each, blocks);
    size_t row = workgroup / parts * rows_each, last = least(row + rows_each, rows);
    Places places = {chosen + chosen_at, rows_per_sequence, count};
    terms += terms_at + first, scales += scales_at, b += b_at, out += out_at;
    for (size_t together; row < last; row += together) {
        size_t place = place_of(places, row);
        together = rows_together(places, row, last);
        if (!place) continue;
        float scale = scales[row / rows_per_sequence];
        for (size_t block = begin; block < end; block++) {
            Blocks one = blocks_from(sources, block, block + 1);
            const float *from = terms + row * stride + one.source * rank;
            const Value *own = b + ((place - 1) * blocks + block) * rank * LANES;
            float *to = out + row * outputs + one.first;
            size_t width = least(LANES, one.last - one.first);
            if (together == SEQUENCE_ROWS)
                add_terms(from, stride, SEQUENCE_ROWS, own, rank, scale, to, outputs, width);
            else
                add_terms(from, stride, 1, own, rank, scale, to, outputs, width);
        }
    }
    return 0;
}
