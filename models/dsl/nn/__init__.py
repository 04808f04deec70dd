"""Modules: the parts of a model that own weights.

The names that a file has in its `__all__` are the names of this package. The parameters of a layer
that PyTorch has too are called as in its state_dict.
"""

from hearthd.models.dsl.nn.conv_layers import *
from hearthd.models.dsl.nn.linear_layers import *
from hearthd.models.dsl.nn.module import *
from hearthd.models.dsl.nn.norm_layers import *
from hearthd.models.dsl.nn.recurrent_layers import *
