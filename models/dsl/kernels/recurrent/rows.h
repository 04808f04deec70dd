// Rows of some tokens that a recurrence reads.
#ifndef HEARTH_ROWS_H
#define HEARTH_ROWS_H

#include "isa/vector.h"

// Each row is `step` behind that of the token before.
struct rows {
    const float *at;
    size_t step;
};

INLINE struct rows behind(struct rows rows, size_t tokens) {
    return (struct rows){rows.at + tokens * rows.step, rows.step};
}

// Stores sixteen values of a state. Nothing reads that of a token that comes alone until all
// weights were read, so it is stored past the caches.
INLINE void store_state(float *to, f32x16 lanes, int is_alone) {
    if (is_alone)
        store_past(to, lanes);
    else
        store(to, lanes);
}

#endif
