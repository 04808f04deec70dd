// Rows of a matrix of int8 in groups of 32 columns, as f32: op `embedding_grouped`.
#include "dot.h"

int hearth_embedding_grouped(const int32_t *ids, size_t ids_at, const int8_t *weight,
                             size_t weight_at, const _Float16 *scale, size_t scale_at, float *out,
                             size_t out_at, size_t token, size_t columns) {
    size_t groups = columns / GROUP, id = (size_t)ids[ids_at + token];
    const int8_t *block = weight + weight_at + id / ROWS * ROWS * columns + id % ROWS * QUAD;
    const _Float16 *scales = scale + scale_at + id / ROWS * ROWS * groups + id % ROWS;
    out += out_at + token * columns;
    for (size_t i = 0; i < columns; i++)
        out[i] = (float)block[i / QUAD * QUAD * ROWS + i % QUAD] * (float)scales[i / GROUP * ROWS];
    return 0;
}
