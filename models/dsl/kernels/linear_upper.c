#define NAME hearth_linear_upper
#define BITS 8
#include "linear_upper.h"
