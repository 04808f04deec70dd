#define NAME hearth_linear_refined_int6_halves
#define BITS 6
#include "linear_refined.h"
