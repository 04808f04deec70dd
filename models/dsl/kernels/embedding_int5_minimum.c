#define NAME hearth_embedding_int5_minimum
#define BITS 5
#define HALVES 0
#define MINIMUM 1
#include "embedding_small.h"
