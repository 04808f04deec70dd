// Shared by the kernels of LoRA adapters: which rows have an adapter, and partial vectors.
#ifndef HEARTH_ADAPTERS_H
#define HEARTH_ADAPTERS_H

#include "isa/vector.h"

// Rows of a sequence that are multiplied with a place's factors at a time.
enum { SEQUENCE_ROWS = 4 };
// Matrices whose rows follow each other in one product.
enum { SOURCES = 4 };

// The places of sequences, i32: 0 for none, then 1 to `count`. Each sequence has `each` rows.
typedef struct {
    const int32_t *chosen;
    size_t each, count;
} Places;

// The place of a row, from 1 on, or 0. One that does not exist counts as none.
INLINE size_t place_of(Places places, size_t row) {
    int32_t place = places.chosen[row / places.each];
    return place < 0 || (size_t)place > places.count ? 0 : (size_t)place;
}

// The rows from `row` on, up to `end`, that are multiplied together: SEQUENCE_ROWS of one sequence,
// or 1.
INLINE size_t rows_together(Places places, size_t row, size_t end) {
    size_t last = row + SEQUENCE_ROWS - 1;
    return last < end && last / places.each == row / places.each ? SEQUENCE_ROWS : 1;
}

// Blocks of sixteen outputs of one matrix, up to block `end`; the last one may be partial. `first`
// is their first output, and `last` the end of the matrix's outputs.
typedef struct {
    size_t source, end, first, last;
} Blocks;

// The blocks from `block` on, up to `end`, of one matrix.
INLINE Blocks blocks_from(const size_t sources[SOURCES], size_t block, size_t end) {
    size_t before = 0, output = 0;
    for (size_t source = 0; source < SOURCES; source++) {
        size_t after = before + (sources[source] + LANES - 1) / LANES;
        if (block < after)
            return (Blocks){source, least(end, after), output + (block - before) * LANES,
                            output + sources[source]};
        before = after, output += sources[source];
    }
    return (Blocks){0, end, 0, 0};
}

// The blocks of sixteen outputs of all matrices.
INLINE size_t count_blocks(const size_t sources[SOURCES]) {
    size_t blocks = 0;
    for (int i = 0; i < SOURCES; i++) blocks += (sources[i] + LANES - 1) / LANES;
    return blocks;
}

// Fetches bytes that are read soon. An adapter's factors are too few, and the factors of two rows'
// places too far from each other, for a CPU's own prefetching.
INLINE void fetch_soon(const void *from, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 64) __builtin_prefetch((const char *)from + at);
}

// The first `count` of sixteen lanes from memory, followed by zeros.
INLINE f32x16 load_part(const float *from, size_t count) {
    if (count >= LANES) return load(from);
    float lanes[LANES] = {0};
    for (size_t i = 0; i < count; i++) lanes[i] = from[i];
    return load(lanes);
}

INLINE void store_part(float *to, f32x16 lanes, size_t count) {
    if (count >= LANES) {
        store(to, lanes);
        return;
    }
    for (size_t i = 0; i < count; i++) to[i] = lanes[i];
}

// Zeros.
INLINE void clear(float *to, size_t count) {
    for (size_t i = 0; i < count; i++) to[i] = 0;
}

#endif
