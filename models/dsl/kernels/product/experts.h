// Which rows have the same expert. An expert that no row has is never met, so its matrix is not
// read.
#ifndef HEARTH_EXPERTS_H
#define HEARTH_EXPERTS_H

#include "isa/vector.h"

// The most rows that are multiplied with an expert's matrix at a time.
enum { TOGETHER = 16 };

// The experts of `rows` rows, i32, each below `experts`; `each` rows that follow each other are
// one row of x.
typedef struct {
    const int32_t *chosen;
    size_t rows, each, experts;
} Routing;

// The expert of a row. One that does not exist counts as the nearest that does.
INLINE size_t expert_of(Routing routing, size_t row) {
    int32_t expert = routing.chosen[row];
    return expert < 0 ? 0 : least((size_t)expert, routing.experts - 1);
}

// The experts of sixteen rows from `row` on.
INLINE i32x16 experts_of(Routing routing, size_t row) {
    i32x16 experts, last = (i32x16){} + (int32_t)(routing.experts - 1);
    __builtin_memcpy(&experts, routing.chosen + row, sizeof experts);
    return __builtin_elementwise_min(__builtin_elementwise_max(experts, (i32x16){}), last);
}

// The first expert, from `expert` on, that a row has, or `routing.experts`.
INLINE size_t next_expert(Routing routing, size_t expert) {
    i32x16 none = (i32x16){} + (int32_t)routing.experts, first = none;
    size_t row = 0;
    for (; row + LANES <= routing.rows; row += LANES) {
        i32x16 experts = experts_of(routing, row), is_before = experts < (int32_t)expert;
        experts = (none & is_before) | (experts & ~is_before);
        first = __builtin_elementwise_min(first, experts);
    }
    size_t found = (size_t)__builtin_reduce_min(first);
    for (; row < routing.rows; row++)
        if (expert_of(routing, row) >= expert) found = least(found, expert_of(routing, row));
    return found;
}

// As `next_expert`, after `skipped` of them.
INLINE size_t later_expert(Routing routing, size_t expert, size_t skipped) {
    size_t found = next_expert(routing, expert);
    while (skipped-- && found < routing.experts) found = next_expert(routing, found + 1);
    return found;
}

// Whether any of sixteen rows from `row` on has an expert.
INLINE int some_have(Routing routing, size_t row, size_t expert) {
    return __builtin_reduce_min((i32x16)(experts_of(routing, row) == (int32_t)expert)) != 0;
}

// Finds the next rows, from `*next` on, of an expert, at most `most`. Their number is 1, 2, 4, 8 or
// 16, with the last one repeated, or 0 if there are none. Of 9 to 12 rows only the first 8 are
// found, and the next call finds the rest: a second pass over the matrix takes less time than
// repeated rows. In tiles all are found, since 8 rows take as long as 16.
INLINE int next_rows(size_t found[TOGETHER], int most, int in_tiles, Routing routing, size_t expert,
                     size_t *next) {
    int count = 0, filled = 1;
    while (*next < routing.rows && count < most) {
        if (*next + LANES <= routing.rows && !some_have(routing, *next, expert)) {
            *next += LANES;
            continue;
        }
        if (expert_of(routing, *next) == expert) found[count++] = *next;
        ++*next;
    }
    while (filled < count) filled *= 2;
    if (filled == 16 && count <= 12 && !in_tiles) {
        count = filled = 8;
        *next = found[8];
    }
    for (int i = count; count && i < filled; i++) found[i] = found[count - 1];
    return count ? filled : 0;
}

#endif
