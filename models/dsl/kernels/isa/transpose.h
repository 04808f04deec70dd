// Transposes sixteen vectors.
#ifndef HEARTH_TRANSPOSE_H
#define HEARTH_TRANSPOSE_H

#include "isa/vector.h"

// Transposes 16 x 16.
INLINE void transpose16(f32x16 x[LANES]) {
#define SHUFFLE __builtin_shufflevector
    f32x16 y[LANES];
    for (int i = 0; i < LANES; i += 2) {
        y[i] = SHUFFLE(x[i], x[i + 1], 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
        y[i + 1] =
            SHUFFLE(x[i], x[i + 1], 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
    }
#define LOW(a, b) SHUFFLE(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29)
#define HIGH(a, b) SHUFFLE(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31)
    for (int i = 0; i < LANES; i += 4) {
        x[i] = LOW(y[i], y[i + 2]);
        x[i + 1] = HIGH(y[i], y[i + 2]);
        x[i + 2] = LOW(y[i + 1], y[i + 3]);
        x[i + 3] = HIGH(y[i + 1], y[i + 3]);
    }
#undef LOW
#undef HIGH
#define LOW(a, b) SHUFFLE(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23)
#define HIGH(a, b) SHUFFLE(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31)
#define EVEN(a, b) SHUFFLE(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27)
#define ODD(a, b) SHUFFLE(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31)
    for (int i = 0; i < 4; i++) {
        f32x16 a = LOW(x[i], x[i + 4]), b = HIGH(x[i], x[i + 4]);
        f32x16 c = LOW(x[i + 8], x[i + 12]), d = HIGH(x[i + 8], x[i + 12]);
        x[i] = EVEN(a, c);
        x[i + 4] = ODD(a, c);
        x[i + 8] = EVEN(b, d);
        x[i + 12] = ODD(b, d);
    }
#undef LOW
#undef HIGH
#undef EVEN
#undef ODD
#undef SHUFFLE
}

#endif
