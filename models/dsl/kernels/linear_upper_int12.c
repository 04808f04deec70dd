#define NAME hearth_linear_upper_int12
#define BITS 12
#include "linear_upper.h"
