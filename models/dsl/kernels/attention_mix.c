#include "vector.h"

#define NAME hearth_attention_mix
typedef float Value;
#define load_value load
#include "attention_mix.h"
