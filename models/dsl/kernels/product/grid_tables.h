// The tables of grids: the lower bytes of their entries and then the upper ones, and the levels of
// each entry, a byte each.
#ifndef HEARTH_GRID_TABLES_H
#define HEARTH_GRID_TABLES_H

#include <stdint.h>

#include "product/grids.h"

#define ENTRY(four, i) ((four) >> 16 * (i) & 0xFFFF)
#define ALL_OF(f, four) f(ENTRY(four, 0)), f(ENTRY(four, 1)), f(ENTRY(four, 2)), f(ENTRY(four, 3))
#define LOWER_BYTE(entry) ((entry) & 0xFF)
#define UPPER_BYTE(entry) ((entry) >> 8)
#define LOWER_BYTES(four) ALL_OF(LOWER_BYTE, four)
#define UPPER_BYTES(four) ALL_OF(UPPER_BYTE, four)
// The bytes of the levels of a quad, from an entry of four columns, or of eight.
#define QUAD_OF_4(entry) (((entry) | (entry) << 12) & 0x07070707)
#define FIRST_OF_8(entry) (((entry) | (entry) << 14) & 0x03030303)
#define BOTH_OF_8(entry) (FIRST_OF_8(entry) | FIRST_OF_8((entry) >> 4) << 32)
#define ABOVE(entry) ((uint64_t)QUAD_OF_4(entry) << 32)
#define LEVELS_OF_4(four) ALL_OF(ABOVE, four)
#define LEVELS_OF_8(four) ALL_OF(BOTH_OF_8, four)

#define TABLES(name, LIST, LEVELS)                                                \
    static const uint8_t name##_bytes[] = {LIST(LOWER_BYTES), LIST(UPPER_BYTES)}; \
    static const uint64_t name##_levels[] = {LIST(LEVELS)}
TABLES(iq3_xxs, IQ3_XXS_GRID, LEVELS_OF_4);
TABLES(iq3_s, IQ3_S_GRID, LEVELS_OF_4);
TABLES(iq2_xxs, IQ2_XXS_GRID, LEVELS_OF_8);
TABLES(iq2_xs, IQ2_XS_GRID, LEVELS_OF_8);
TABLES(iq2_s, IQ2_S_GRID, LEVELS_OF_8);
TABLES(iq1_s, IQ1_S_GRID, LEVELS_OF_8);

#endif
