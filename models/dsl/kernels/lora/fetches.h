// Bytes that are read later, fetched a few lines at a time between steps of a computation.
//
// A CPU waits for few lines at once, so they are spread over all steps. A step has no branches.
#ifndef HEARTH_FETCHES_H
#define HEARTH_FETCHES_H

#include "isa/vector.h"

enum { MAX_SPANS = 24, LINE = 64, MAX_LINES = 6 };

typedef struct {
    const char *from, *end;
} Span;

// Spans of bytes, and one behind them, at which the fetches stay.
typedef struct {
    Span spans[MAX_SPANS + 1];
    size_t count;
} Fetches;

// A place in the spans, and where a step's lines are from there: the last one is repeated.
typedef struct {
    const Span *span, *last;
    const char *from;
    size_t offsets[MAX_LINES], bytes;
} Cursor;

INLINE void add_span(Fetches *to, const void *from, size_t bytes) {
    to->spans[to->count++] = (Span){from, (const char *)from + bytes};
}

// The cursor before the first of some steps. After the spans, `idle` is fetched.
INLINE Cursor start_fetches(Fetches *fetches, size_t steps, const void *idle) {
    size_t count = fetches->count, lines = 0;
    fetches->spans[count] = (Span){idle, idle};
    for (size_t i = 0; i < count; i++)
        lines += (size_t)(fetches->spans[i].end - fetches->spans[i].from) / LINE + 1;
    steps -= least(count, steps / 2);  // each span may end with a step that has fewer lines
    size_t each = least((lines + steps - 1) / steps, MAX_LINES);
    if (!each) each = 1;
    Cursor start = {fetches->spans, fetches->spans + count, fetches->spans->from, {0}, each * LINE};
    for (size_t i = 0; i < MAX_LINES; i++) start.offsets[i] = least(i, each - 1) * LINE;
    return start;
}

// Fetches the lines of a step into the second cache: the first one is in use.
INLINE Cursor fetch_some(Cursor at) {
    for (int i = 0; i < MAX_LINES; i++)
        __builtin_prefetch(at.from + at.offsets[i], 0, SECOND_CACHE);
    const char *next = at.from + at.bytes;
    int is_end = next >= at.span->end;
    at.span += is_end & (at.span != at.last);
    at.from = is_end ? at.span->from : next;
    return at;
}

#endif
