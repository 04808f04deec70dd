#include "vector.h"

#define NAME hearth_attention_cached
typedef float Value;
#define load_value load
#include "attention.h"
