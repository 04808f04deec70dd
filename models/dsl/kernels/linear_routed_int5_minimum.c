#define NAME hearth_linear_routed_int5_minimum
#define BITS 5
#define HALVES 0
#define MINIMUM 1
#define ROUTED 1
#define ADAPTED 0
#include "linear_small.h"
