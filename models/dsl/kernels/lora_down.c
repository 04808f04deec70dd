#include "vector.h"

#define NAME hearth_lora_down
typedef float Value;
#define load_value load
#include "lora_down.h"
