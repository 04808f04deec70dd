#include "vector.h"

INLINE f32x16 values(const float *from) { return load(from); }

INLINE float value(float weight) { return weight; }

#define NAME hearth_linear_routed_f32
#define WEIGHT float
#include "routed_floats.h"
