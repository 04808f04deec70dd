"""Ops that have a C kernel of their own (models/dsl/kernels). Their functions are their meaning.

The compiler makes several dispatches of what one of these computes, and after each dispatch the
workers wait for each other, which takes longer than the arithmetic of a token. Models do not call
these ops: rules put them into a traced graph (models/optimized.py).
"""

from hearthd.models.dsl.fused.adapted_products import *
from hearthd.models.dsl.fused.adapter_products import *
from hearthd.models.dsl.fused.bf16_products import *
from hearthd.models.dsl.fused.cache_attention import *
from hearthd.models.dsl.fused.causal_conv import *
from hearthd.models.dsl.fused.channel_delta_rule import *
from hearthd.models.dsl.fused.delta_rule import *
from hearthd.models.dsl.fused.full_attention import *
from hearthd.models.dsl.fused.gated_layers import *
from hearthd.models.dsl.fused.int4_cache import *
from hearthd.models.dsl.fused.norm_kernels import *
from hearthd.models.dsl.fused.quantized_products import *
from hearthd.models.dsl.fused.routed_products import *
from hearthd.models.dsl.fused.routing import *
from hearthd.models.dsl.fused.selective_scan import *
from hearthd.models.dsl.fused.sketched_head import *
from hearthd.models.dsl.fused.ssm_scan import *
from hearthd.models.dsl.fused.two_part_head import *
