"""The names of `triton.knobs`."""

from deuteron.runtime.knobs import (
    HookChain,
    amd,
    autotuning,
    build,
    cache,
    compilation,
    intel,
    language,
    nvidia,
    proton,
    redis,
    runtime,
)

__all__ = [
    "HookChain", "amd", "autotuning", "build", "cache", "compilation", "intel", "language",
    "nvidia", "proton", "redis", "runtime",
]  # fmt: skip
