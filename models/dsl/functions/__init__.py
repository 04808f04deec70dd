"""Plain functions over ops, which models are written in.

They have no shape rule, value or gradient of their own, so there is nothing to keep in step.
The names that a file has in its `__all__` are the names of this package.
"""

from hearthd.models.dsl.functions.activations import *
from hearthd.models.dsl.functions.attention import *
from hearthd.models.dsl.functions.causal_conv import *
from hearthd.models.dsl.functions.channel_delta_rule import *
from hearthd.models.dsl.functions.conv import *
from hearthd.models.dsl.functions.delta_rule import *
from hearthd.models.dsl.functions.dropout import *
from hearthd.models.dsl.functions.f16_cache import *
from hearthd.models.dsl.functions.int4_cache import *
from hearthd.models.dsl.functions.int8_cache import *
from hearthd.models.dsl.functions.losses import *
from hearthd.models.dsl.functions.norms import *
from hearthd.models.dsl.functions.pooling import *
from hearthd.models.dsl.functions.products import *
from hearthd.models.dsl.functions.recurrent import *
from hearthd.models.dsl.functions.routing import *
from hearthd.models.dsl.functions.selection import *
from hearthd.models.dsl.functions.selective_scan import *
from hearthd.models.dsl.functions.shapes import *
from hearthd.models.dsl.functions.ssm_scan import *
from hearthd.models.dsl.functions.state_rings import *
from hearthd.models.dsl.functions.statistics import *
