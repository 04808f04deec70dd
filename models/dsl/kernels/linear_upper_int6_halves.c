#define NAME hearth_linear_upper_int6_halves
#define BITS 6
#include "linear_upper.h"
