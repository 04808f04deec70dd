#include "vector.h"

#define NAME hearth_lora_up
typedef float Value;
#define load_value load
#include "lora_up.h"
