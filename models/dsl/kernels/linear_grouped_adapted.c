#define NAME hearth_linear_grouped_adapted
#define BITS 8
#define HALVES 0
#define MINIMUM 0
#define ROUTED 0
#define ADAPTED 1
#include "linear_small.h"
