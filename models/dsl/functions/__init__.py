"""Plain functions over ops, which models are written in.

They have no shape rule, value or gradient of their own, so there is nothing to keep in step.
The names that a file has in its `__all__` are the names of this package.
"""

from models.dsl.functions.activations import *
from models.dsl.functions.attention import *
from models.dsl.functions.conv import *
from models.dsl.functions.dropout import *
from models.dsl.functions.f16_cache import *
from models.dsl.functions.int8_cache import *
from models.dsl.functions.losses import *
from models.dsl.functions.norms import *
from models.dsl.functions.pooling import *
from models.dsl.functions.products import *
from models.dsl.functions.recurrent import *
from models.dsl.functions.selection import *
from models.dsl.functions.shapes import *
from models.dsl.functions.statistics import *
