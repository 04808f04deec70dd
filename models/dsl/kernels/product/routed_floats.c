// Multiplies rows of f32 with the matrices of their experts, which are floats: op `routed_linear`.
// A variant defines NAME and the type of weights (floats.h).
#include "product/floats.h"
#include "product/read_ahead.h"

// Some rows of x times the rows `begin` to `end` of an expert's matrix: out has `outputs` floats a
// row.
INLINE void multiply_rows(const float *x, const size_t *rows, int count, size_t each,
                          const WEIGHT *weight, size_t columns, size_t begin, size_t end,
                          float *out, size_t outputs) {
    const float *sources[SHARED_ROWS];
    Products products;
    for (int i = 0; i < count; i++) sources[i] = x + rows[i] / each * columns;
    for (size_t output = begin; output < end; output++) {
        multiply_floats(sources, count, weight + output * columns, 1, weight + end * columns,
                        columns, products);
        for (int i = 0; i < count; i++) out[rows[i] * outputs + output] = products[i][0];
    }
}

// x f32 (rows / each, columns), chosen i32 (rows,), weight (experts * outputs, columns), out f32
// (rows, outputs); a workgroup computes `blocks` times sixteen outputs of the rows of
// `experts_each` experts.
int NAME(const float *x, size_t x_at, const int32_t *chosen, size_t chosen_at, const WEIGHT *weight,
         size_t weight_at, float *out, size_t out_at, size_t workgroup, size_t blocks,
         size_t experts_each, size_t rows, size_t each, size_t outputs, size_t columns,
         size_t experts) {
    Routing routing = {chosen + chosen_at, rows, each, experts};
    RoutedShare share = routed_share_of(workgroup, experts_each, blocks, routing, outputs);
    size_t begin = share.begin * LANES, end = least(share.end * LANES, outputs), some[TOGETHER];
    x += x_at, weight += weight_at, out += out_at;
    const BlockArray row = {(const char *)weight, columns * sizeof *weight};
    const ExpertArrays arrays = {.arrays = {row}, .count = 1, .blocks = outputs};
    size_t following, met = 0;
    for (size_t expert = first_expert(share, routing); expert < share.last_expert;
         expert = following, met++) {
        following = following_expert(share, routing, expert);
        if (STREAMED) read_experts_soon(&arrays, routing, share, expert, following, met);
        const WEIGHT *own = weight + expert * outputs * columns;
        for (size_t next = 0; next < rows;) {
            int count = next_rows(some, SHARED_ROWS, routing, expert, &next);
            if (count == 8) multiply_rows(x, some, 8, each, own, columns, begin, end, out, outputs);
            if (count == 4) multiply_rows(x, some, 4, each, own, columns, begin, end, out, outputs);
            if (count == 2) multiply_rows(x, some, 2, each, own, columns, begin, end, out, outputs);
            if (count == 1) multiply_rows(x, some, 1, each, own, columns, begin, end, out, outputs);
        }
    }
    return 0;
}
