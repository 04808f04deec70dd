// Rows of tokens that a recurrence reads.
#ifndef HEARTH_ROWS_H
#define HEARTH_ROWS_H

#include "isa/vector.h"

// The row of the next token begins `step` floats further.
struct rows {
    const float *at;
    size_t step;
};

INLINE struct rows behind(struct rows rows, size_t tokens) {
    return (struct rows){rows.at + tokens * rows.step, rows.step};
}

// Stores sixteen values of a state. The state of a single token is not read again before all
// weights are, so it is stored past the caches.
INLINE void store_state(float *to, f32x16 lanes, int is_alone) {
    if (is_alone)
        store_past(to, lanes);
    else
        store(to, lanes);
}

#endif
