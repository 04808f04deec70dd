#include "vector.h"

#define NAME hearth_attention_scores
typedef float Value;
#define load_value load
#include "attention_scores.h"
