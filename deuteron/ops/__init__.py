"""The kernel library: ready-made operations, each a plain `@jit` kernel with a host wrapper.

    add(x, y)                      elementwise sum
    softmax(x)                     over the last axis
    layer_norm(x, weight, bias)    over the last axis
    matmul(a, b)                   2-D product, any strides
    attention(q, k, v)             softmax(q k^T · scale) v, causal on request

Arrays are NumPy's, torch's (CPU) or `deuteron.reinterpret`ed ones, in and out; `out=` takes the
result's place.  The kernels are what a newcomer would write: read them as examples, too.
"""

from deuteron.ops.attention import attention
from deuteron.ops.elementwise import add
from deuteron.ops.layer_norm import layer_norm
from deuteron.ops.matmul import matmul
from deuteron.ops.softmax import softmax

__all__ = ["add", "attention", "layer_norm", "matmul", "softmax"]
