"""The names of `triton.runtime.cache`."""

from deuteron.compat import absent
from deuteron.runtime.compiler_stamp import compiler_stamp as triton_key
from deuteron.runtime.file_cache import (
    FileCacheManager,
    RemoteCacheBackend,
    RemoteCacheManager,
    default_cache_dir,
    get_cache_manager,
)

__all__ = [
    "FileCacheManager", "RemoteCacheBackend", "RemoteCacheManager", "default_cache_dir",
    "get_cache_manager", "triton_key",
]  # fmt: skip


def __getattr__(name: str) -> object:
    absent(__name__, name)
