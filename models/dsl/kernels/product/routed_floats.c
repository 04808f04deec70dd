// Multiplies rows of f32 with the matrices of their experts, which are floats: op `routed_linear`.
// A variant defines NAME and the type of weights (floats.h).
#include "product/expert_turns.h"
#include "product/floats.h"

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
// (rows, outputs); a workgroup computes `blocks` times sixteen outputs of the rows of each
// `stride`-th of `experts_each` experts.
int NAME(const float *x, size_t x_at, const int32_t *chosen, size_t chosen_at, const WEIGHT *weight,
         size_t weight_at, float *out, size_t out_at, size_t workgroup, size_t blocks,
         size_t experts_each, size_t stride, size_t rows, size_t each, size_t outputs,
         size_t columns, size_t experts) {
    Routing routing = {chosen + chosen_at, rows, each, experts};
    x += x_at, weight += weight_at, out += out_at;
    size_t bytes = outputs * columns * sizeof *weight, some[TOGETHER];
    const ExpertArrays arrays = {.arrays = {{(const char *)weight, bytes}}, .count = 1};
    Turns turns = turns_of(workgroup, experts_each, stride, blocks, routing, outputs, &arrays);
    size_t begin = turns.begin * LANES, end = least(turns.end * LANES, outputs);
    while (next_turn(&turns)) {
        const WEIGHT *own = array_in_turn(&turns, weight, bytes);
        for (size_t next = 0; next < rows;) {
            int count = next_rows(some, SHARED_ROWS, 0, routing, turns.expert, &next);
            if (count == 8) multiply_rows(x, some, 8, each, own, columns, begin, end, out, outputs);
            if (count == 4) multiply_rows(x, some, 4, each, own, columns, begin, end, out, outputs);
            if (count == 2) multiply_rows(x, some, 2, each, own, columns, begin, end, out, outputs);
            if (count == 1) multiply_rows(x, some, 1, each, own, columns, begin, end, out, outputs);
        }
    }
    return 0;
}
