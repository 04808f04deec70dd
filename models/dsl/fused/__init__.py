"""Ops that have a C kernel of their own (models/dsl/kernels). Their functions are their meaning.

The compiler makes several dispatches of what one of these computes, and after each dispatch the
workers wait for each other, which takes longer than the arithmetic of a token. Models do not call
these ops: rules put them into a traced graph (models/dsl/fuse.py).
"""

from models.dsl.fused.adapted_products import *
from models.dsl.fused.adapter_products import *
from models.dsl.fused.cache_attention import *
from models.dsl.fused.gated_layers import *
from models.dsl.fused.grouped_products import *
from models.dsl.fused.halved_products import *
from models.dsl.fused.norm_kernels import *
from models.dsl.fused.routed_products import *
from models.dsl.fused.small_products import *
