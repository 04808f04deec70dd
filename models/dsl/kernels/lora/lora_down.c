// Rows of f32 times the factors A of their adapters: op `lora_down`. A variant for
// a type of factors defines NAME, Value and load_value.
#include "lora/adapters.h"

// Factors that are multiplied with a row at a time.
enum { FACTORS = 4 };

// `count` rows of x times FACTORS rows of `a`: writes the first `width` floats of each row of out,
// which has `terms`. A row's sums are added in the same order whatever the other rows are.
INLINE void multiply_terms(const float *x, int count, const Value *a, size_t columns, size_t width,
                           float *out, size_t terms) {
    size_t whole = columns / LANES * LANES;
    const Value *from[FACTORS];
    f32x16 sums[SEQUENCE_ROWS][FACTORS] = {};
    for (size_t i = 0; i < FACTORS; i++) from[i] = a + least(i, width - 1) * columns;
    for (size_t column = 0; column < whole; column += LANES) {
        f32x16 factors[FACTORS];
        fetch_soon(a + FACTORS * (columns + column), FACTORS * LANES * sizeof(Value));
        for (int i = 0; i < FACTORS; i++) factors[i] = load_value(from[i] + column);
#pragma clang loop unroll(full)
        for (int row = 0; row < count; row++) {
            f32x16 values = load(x + (size_t)row * columns + column);
#pragma clang loop unroll(full)
            for (int i = 0; i < FACTORS; i++)
                sums[row][i] = fma16(values, factors[i], sums[row][i]);
        }
    }
#pragma clang loop unroll(full)
    for (int row = 0; row < count; row++) {
        f32x4 totals = sums4(sums[row]);
        for (size_t i = 0; i < width; i++) {
            float total = totals[i];
            for (size_t column = whole; column < columns; column++)
                total += x[(size_t)row * columns + column] * (float)from[i][column];
            out[(size_t)row * terms + i] = total;
        }
    }
}

// x f32 (rows, columns), chosen i32 (sequences,), a (places, terms, columns), out f32
// (rows, terms); a workgroup computes `terms_each` terms of `rows_each` rows.
int NAME(const float *x, size_t x_at, const int32_t *chosen, size_t chosen_at, const Value *a,
         size_t a_at, float *out, size_t out_at, size_t workgroup, size_t rows_each,
         size_t terms_each, size_t rows_per_sequence, size_t rows, size_t terms, size_t columns,
         size_t count) {
    size_t parts = (terms + terms_each - 1) / terms_each;
    size_t begin = workgroup % parts * terms_each, end = least(begin + terms_each, terms);
    size_t row = workgroup / parts * rows_each, last = least(row + rows_each, rows);
    Places places = {chosen + chosen_at, rows_per_sequence, count};
    x += x_at, a += a_at, out += out_at;
    for (size_t together; row < last; row += together) {
        size_t place = place_of(places, row);
        together = rows_together(places, row, last);
        float *to = out + row * terms;
        if (!place) {
            for (size_t i = 0; i < together; i++) clear(to + i * terms + begin, end - begin);
            continue;
        }
        const Value *own = a + (place - 1) * terms * columns;
        const float *from = x + row * columns;
        for (size_t term = begin; term < end; term += FACTORS) {
            const Value *some = own + term * columns;
            size_t width = least(FACTORS, end - term);
            if (together == SEQUENCE_ROWS)
                multiply_terms(from, SEQUENCE_ROWS, some, columns, width, to + term, terms);
            else
                multiply_terms(from, 1, some, columns, width, to + term, terms);
        }
    }
    return 0;
}
