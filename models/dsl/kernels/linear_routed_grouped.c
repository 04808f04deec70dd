// Rows of f32 times the matrices of their experts, int8 in groups of 32 columns: op
// `linear_routed_grouped`.
#include "routed.h"

// x f32 (rows, columns), chosen i32 (rows,), weight and scale of (experts * outputs, columns), out
// f32 (rows, outputs); a workgroup computes `blocks` times sixteen outputs of each row.
int hearth_linear_routed_grouped(const float *x, size_t x_at, const int32_t *chosen,
                                 size_t chosen_at, const int8_t *weight, size_t weight_at,
                                 const _Float16 *scale, size_t scale_at, float *out, size_t out_at,
                                 size_t workgroup, size_t blocks, size_t rows, size_t outputs,
                                 size_t columns, size_t experts) {
    Integers integers = {8, .whole = weight + weight_at};
    Matrix matrix = {integers, scale + scale_at, .groups = columns / GROUP};
    Routing routing = {chosen + chosen_at, rows, experts};
    multiply_routed(x + x_at, routing, &matrix, workgroup, blocks, out + out_at, outputs);
    return 0;
}
