#define NAME hearth_linear_int5_minimum_adapted
#define BITS 5
#define HALVES 0
#define MINIMUM 1
#define ROUTED 0
#define ADAPTED 1
#include "linear_small.h"
