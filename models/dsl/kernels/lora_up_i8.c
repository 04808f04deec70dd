#include "vector.h"

#define NAME hearth_lora_up_i8
#define SCALED 1
typedef int8_t Value;
#define load_value widen_small
#include "lora_up.h"
