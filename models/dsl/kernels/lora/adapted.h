// The body of a kernel that multiplies few rows of f32 with a matrix, adds the terms of the rows'
// adapters, and fetches the factors A that come next: op `linear_adapted`.
#ifndef HEARTH_ADAPTED_H
#define HEARTH_ADAPTED_H

#include "lora/adapter_terms.h"
#include "product/product.h"

// The factors A of a later product; rows `begin` to `end` of each place are fetched.
typedef struct {
    const int8_t *a;
    size_t terms, columns, begin, end;
} Soon;

#define SOON_SIZES size_t soon_terms, size_t soon_columns, size_t soon_begin, size_t soon_end
#define SOON {soon + soon_at, soon_terms, soon_columns, soon_begin, soon_end}

// The bytes that a workgroup of `parts` fetches: factors B and scales of its own blocks, then its
// part of the factors A.
INLINE Fetches fetches_of(const Adapters *adapters, Share share, const Soon *soon, size_t part,
                          size_t parts) {
    Fetches fetches = {.count = 0};
    const Places places = adapters->places;
    size_t rank = adapters->rank, blocks = share.end - share.begin;
    size_t bytes = ((soon->end - soon->begin) * soon->columns + parts - 1) / parts;
    for (int is_soon = 0; is_soon < 2; is_soon++)
        for (size_t row = 0; row < share.rows; row++) {
            size_t place = place_of(places, row);
            if (!place || (row && place == place_of(places, row - 1))) continue;
            const int8_t *a = soon->a + ((place - 1) * soon->terms + soon->begin) * soon->columns;
            size_t stored = stored_block(adapters, place, share.begin);
            if (is_soon) {
                if (bytes) add_span(&fetches, a + part * bytes, bytes);
            } else {
                add_span(&fetches, adapters->b + stored * rank * LANES, blocks * rank * LANES);
                add_span(&fetches, adapters->b_scale + stored * LANES,
                         blocks * LANES * sizeof(_Float16));
            }
        }
    return fetches;
}

// All rows of x, f32 (rows, columns), at most eight, times a workgroup's blocks of a matrix, plus
// the terms of their adapters.
INLINE void multiply_adapted(const float *x, size_t workgroup, size_t blocks, size_t rows,
                             size_t outputs, const Matrix *matrix, const Adapters *adapters,
                             const Soon *soon, float *out) {
    size_t parts = (outputs / ROWS + blocks - 1) / blocks;
    Share share = share_of(workgroup, blocks, rows, rows, outputs);
    Fetches fetches = fetches_of(adapters, share, soon, workgroup, parts);
    size_t steps = (share.end - share.begin) * matrix->groups;
    Cursor start = start_fetches(&fetches, steps, x);
    multiply_all(x, share, matrix, &start, out, outputs);
    add_adapters(adapters, 0, rows, share.begin, share.end, out, outputs);
}

#endif
