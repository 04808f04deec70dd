#define NAME hearth_embedding_int4_minimum
#define BITS 4
#define HALVES 0
#define MINIMUM 1
#include "embedding_small.h"
