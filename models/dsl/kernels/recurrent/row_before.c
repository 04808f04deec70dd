// The row of a ring of states that a position continues: op `row_before`.
#include "isa/vector.h"

// states f32 (rows, width), whose first `ring` rows are a ring, position i32 (1,), out f32
// (width,): row position - 1 mod ring, or zeros for position 0. A workgroup copies `share` values.
int hearth_row_before(const float *states, size_t states_at, const int32_t *position,
                      size_t position_at, float *out, size_t out_at, size_t workgroup, size_t width,
                      size_t ring, size_t share) {
    size_t at = (size_t)position[position_at], end = least((workgroup + 1) * share, width);
    const float *row = states + states_at + (at + ring - 1) % ring * width;
    for (size_t i = workgroup * share; i < end; i += LANES)
        store(out + out_at + i, at ? load(row + i) : (f32x16){});
    return 0;
}
