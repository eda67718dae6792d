"""flash-linear-attention's linear attention and delta rules.  Run by make conformance."""

from __future__ import annotations

import torch
from fla import ops

from tests.kernels.compare import Case, Draw, check, every

BATCH, LENGTH, HEADS, DEPTH, WIDTH = 2, 70, 2, 32, 16
SCALE = DEPTH**-0.5


def recurrence(q, k, v, decay=None, *, beta=None, probe=None, low_rank=None, bonus=None):
    """Read a state of keys and values with queries, after each step; also the last state.

    Per step the state is multiplied by exp(`decay`), a number of each head or of each key channel;
    `beta` makes it a delta rule, which writes what is missing from what the key reads, or a `probe`
    from the state before;
    `low_rank` (a, b) adds b of what a reads before; with `bonus`, the weight of what is written in
    this step, states are read before they are decayed.
    """
    state = torch.zeros(q.shape[0], q.shape[2], k.shape[-1], v.shape[-1], dtype=q.dtype)
    read = []
    for t in range(q.shape[1]):
        before = state
        if decay is not None:
            gate = decay[:, t].exp()
            state = state * (gate[..., None, None] if gate.ndim == 2 else gate[..., None])
        value = v[:, t]
        if beta is not None:
            key, of = (k, state) if probe is None else (probe, before)
            missing = value - torch.einsum("bhk,bhkv->bhv", key[:, t], of)
            value = missing * beta[:, t, :, None]
        if low_rank is not None:
            a, b = low_rank
            found = torch.einsum("bhk,bhkv->bhv", a[:, t], before)
            state = state + b[:, t, :, :, None] * found[:, :, None]
        written = k[:, t, :, :, None] * value[:, :, None]
        state = state + written
        seen = state if bonus is None else before + bonus[..., None] * written
        read.append(torch.einsum("bhk,bhkv->bhv", q[:, t] * SCALE, seen))
    return torch.stack(read, 1), state


def drawn(draw: Draw):
    """Queries, keys and values."""
    shape = (BATCH, LENGTH, HEADS)
    return draw.leaf(*shape, DEPTH), draw.leaf(*shape, DEPTH), draw.leaf(*shape, WIDTH)


def unit(x: torch.Tensor) -> torch.Tensor:
    """Of length 1, as delta rules ask of their keys."""
    return torch.nn.functional.normalize(x.detach().float(), dim=-1).to(x.dtype).requires_grad_()


def decay(draw: Draw, *shape: int) -> torch.Tensor:
    """Logarithms of gates between 0 and 1."""
    drawn = draw.fixed(BATCH, LENGTH, HEADS, *shape)
    return torch.nn.functional.logsigmoid(drawn.float() + 2).to(drawn.dtype).requires_grad_()


def beta(draw: Draw) -> torch.Tensor:
    return draw.fixed(BATCH, LENGTH, HEADS).sigmoid().requires_grad_()


def delta(draw: Draw):
    q, k, v = drawn(draw)
    return q, unit(k), v


def low_rank(draw: Draw):
    """Queries, keys, values, and a and b so that the state does not grow."""
    a = unit(draw.fixed(BATCH, LENGTH, HEADS, DEPTH))
    b = (-0.5 * a.detach()).requires_grad_()
    return *drawn(draw), a, b


def fading(q, k, v):
    """Each head forgets at a rate of its own."""
    rate = torch.log(1 - 2.0 ** (-5 - torch.arange(HEADS, dtype=torch.float64)))
    return recurrence(q, k, v, rate.expand(*q.shape[:3]))[0]


def of_layer(q, k, v):
    """The rates of lightning attention's second layer of four."""
    rate = -8 / HEADS * (1 - 1 / 4) * torch.arange(HEADS, dtype=torch.float64)
    return recurrence(q, k, v, rate.expand(*q.shape[:3]))[0]


LINEAR = [
    *(
        Case(f"{form}_linear_attn", lambda *given, call=call: call(*given, normalize=False)[0],
             lambda *given: recurrence(*given)[0], drawn)
        for form, call in (
            ("chunk", ops.chunk_linear_attn),
            ("fused_chunk", ops.fused_chunk_linear_attn),
            ("fused_recurrent", ops.fused_recurrent_linear_attn),
        )
    ),
    *(
        Case(f"{form}_retention", lambda *given, call=call: call(*given)[0], fading, drawn)
        for form, call in (
            ("chunk", ops.chunk_retention),
            ("fused_chunk", ops.fused_chunk_retention),
            ("fused_recurrent", ops.fused_recurrent_retention),
            ("parallel", ops.parallel_retention),
        )
    ),
    *(
        Case(f"{form}_lightning_attn", lambda *given, call=call: call(*given, 1, 4)[0],
             of_layer, drawn)
        for form, call in (
            ("chunk", ops.chunk_lightning_attn),
            ("fused_recurrent", ops.fused_recurrent_lightning_attn),
        )
    ),
    *(
        Case(f"{form}_simple_gla", lambda *given, call=call: call(*given)[0],
             lambda *given: recurrence(*given)[0], lambda draw: (*drawn(draw), decay(draw)))
        for form, call in (
            ("chunk", ops.chunk_simple_gla),
            ("fused_chunk", ops.fused_chunk_simple_gla),
            ("parallel", ops.parallel_simple_gla),
            ("fused_recurrent", ops.fused_recurrent_simple_gla),
        )
    ),
    *(
        Case(f"{form}_gla", lambda *given, call=call: call(*given, output_final_state=True),
             recurrence, lambda draw: (*drawn(draw), decay(draw, DEPTH)))
        for form, call in (("chunk", ops.chunk_gla), ("fused_recurrent", ops.fused_recurrent_gla))
    ),
    *(
        Case(f"{form}_rwkv6", lambda *given, call=call: call(*given)[0],
             lambda q, k, v, w, u: recurrence(q, k, v, w, bonus=u)[0],
             lambda draw: (*drawn(draw), decay(draw, DEPTH), draw.leaf(HEADS, DEPTH)))
        for form, call in (
            ("chunk", ops.chunk_rwkv6), ("fused_recurrent", ops.fused_recurrent_rwkv6)
        )
    ),
]  # fmt: skip

DELTA = [
    *(
        Case(f"{form}_delta_rule", lambda *given, call=call: call(*given, output_final_state=True),
             lambda q, k, v, b: recurrence(q, k, v, beta=b),
             lambda draw: (*delta(draw), beta(draw)),
             (torch.bfloat16,) if form == "chunk" else (torch.float32, torch.bfloat16))
        for form, call in (
            ("chunk", ops.chunk_delta_rule), ("fused_recurrent", ops.fused_recurrent_delta_rule)
        )
    ),
    Case("chunk_gated_delta_rule", lambda *given: ops.chunk_gated_delta_rule(*given)[0],
         lambda q, k, v, g, b: recurrence(q, k, v, g, beta=b)[0],
         lambda draw: (*delta(draw), decay(draw), beta(draw))),
    Case("fused_recurrent_gated_delta_rule",
         lambda q, k, v, g, b: ops.fused_recurrent_gated_delta_rule(q, k, v, g, beta=b)[0],
         lambda q, k, v, g, b: recurrence(q, k, v, g, beta=b)[0],
         lambda draw: [x.detach() for x in (*delta(draw), decay(draw), beta(draw))]),
    Case("chunk_kda", lambda *given: ops.chunk_kda(*given)[0],
         lambda q, k, v, g, b: recurrence(q, k, v, g, beta=b)[0],
         lambda draw: (*delta(draw), decay(draw, DEPTH), beta(draw))),
    Case("fused_recurrent_kda", lambda *given: ops.fused_recurrent_kda(*given)[0],
         lambda q, k, v, g, b: recurrence(q, k, v, g, beta=b)[0],
         lambda draw: [x.detach() for x in (*delta(draw), decay(draw, DEPTH), beta(draw))]),
    Case("chunk_comba", lambda *given: ops.chunk_comba(*given)[0],
         lambda q, k, v, p, g, b: recurrence(q, k, v, g, beta=b, probe=p)[0],
         lambda draw: (*delta(draw), unit(draw.fixed(BATCH, LENGTH, HEADS, DEPTH)), decay(draw),
                       beta(draw))),
    *(
        Case(f"{form}_iplr_delta_rule", lambda *given, call=call: call(*given)[0],
             lambda q, k, v, a, b: recurrence(q, k, v, low_rank=(a, b))[0],
             low_rank if form == "fused_recurrent" else
             lambda draw: [x.detach() for x in low_rank(draw)])
        for form, call in (
            ("chunk", ops.chunk_iplr_delta_rule),
            ("fused_recurrent", ops.fused_recurrent_iplr_delta_rule),
        )
    ),
    *(
        Case(f"{form}_dplr_delta_rule", lambda *given, call=call: call(*given)[0],
             lambda q, k, v, a, b, g: recurrence(q, k, v, g, low_rank=(a, b))[0],
             lambda draw, form=form: [
                 x if form == "chunk" else x.detach()
                 for x in (*low_rank(draw), decay(draw, DEPTH))
             ])
        for form, call in (
            ("chunk", ops.chunk_dplr_delta_rule),
            ("fused_recurrent", ops.fused_recurrent_dplr_delta_rule),
        )
    ),
    Case("chunk_rwkv7",
         lambda q, k, v, a, b, w: ops.chunk_rwkv7(q, w, k, v, a, b, scale=SCALE)[0],
         lambda q, k, v, a, b, w: recurrence(q, k, v, w, low_rank=(a, b))[0],
         lambda draw: (*low_rank(draw), decay(draw, DEPTH))),
]  # fmt: skip
CASES = [*LINEAR, *DELTA]


@every(CASES)
def test_recurrence(case: Case, dtype: torch.dtype):
    check(case, dtype)
