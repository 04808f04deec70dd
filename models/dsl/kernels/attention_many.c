#include "vector.h"

#define NAME hearth_attention_many
typedef float Value;
#define load_value load
#include "attention_many.h"
