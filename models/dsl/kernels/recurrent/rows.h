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

#endif
