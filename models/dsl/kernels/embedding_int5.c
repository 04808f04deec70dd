#define NAME hearth_embedding_int5
#define BITS 5
#define HALVES 0
#define MINIMUM 0
#include "embedding_small.h"
