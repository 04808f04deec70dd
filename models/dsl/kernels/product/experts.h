// Which rows have the same expert. An expert that no row has is never met, so its matrix is not
// read.
#ifndef HEARTH_EXPERTS_H
#define HEARTH_EXPERTS_H

#include "isa/vector.h"

// Rows that are multiplied with an expert's matrix at a time.
enum { TOGETHER = 8 };

// The experts of `rows` rows, i32, each below `experts`.
typedef struct {
    const int32_t *chosen;
    size_t rows, experts;
} Routing;

// The expert of a row. One that does not exist counts as the nearest that does.
INLINE size_t expert_of(Routing routing, size_t row) {
    int32_t expert = routing.chosen[row];
    return expert < 0 ? 0 : least((size_t)expert, routing.experts - 1);
}

// Whether no row before this one has its expert.
INLINE int is_first(Routing routing, size_t row) {
    for (size_t before = 0; before < row; before++)
        if (expert_of(routing, before) == expert_of(routing, row)) return 0;
    return 1;
}

// Finds the next rows, from `*next` on, of an expert. Their number is 1, 2, 4 or 8, with the last
// one repeated, or 0 if there are none.
INLINE int next_rows(size_t found[TOGETHER], Routing routing, size_t expert, size_t *next) {
    int count = 0, filled = 1;
    for (; *next < routing.rows && count < TOGETHER; ++*next)
        if (expert_of(routing, *next) == expert) found[count++] = *next;
    while (filled < count) filled *= 2;
    for (int i = count; count && i < filled; i++) found[i] = found[count - 1];
    return count ? filled : 0;
}

#endif
