"""Every op of the DSL. Each is declared once, in one of these files; REGISTRY holds them all.

Values are positional, attributes are keywords. There is no implicit broadcasting and no dtype
promotion: `broadcast` and `convert` are ops, so most shape rules read "all the same".
The names that a file has in its `__all__` are the names of this package.
"""

from hearthd.models.dsl.ops.control import *
from hearthd.models.dsl.ops.convolution import *
from hearthd.models.dsl.ops.creation import *
from hearthd.models.dsl.ops.elementwise import *
from hearthd.models.dsl.ops.indexing import *
from hearthd.models.dsl.ops.matmul import *
from hearthd.models.dsl.ops.record import *
from hearthd.models.dsl.ops.reduction import *
from hearthd.models.dsl.ops.shape import *
from hearthd.models.dsl.ops.subscript import *
