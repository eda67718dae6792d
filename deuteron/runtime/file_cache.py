"""Folders of files by key, beside the compiled kernels: under Triton's names, for who keeps own
files there.  A `RemoteCacheManager` keeps them in a store that the caller gives.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from deuteron import config
from deuteron.backends.llvm.object_cache import write_atomically
from deuteron.errors import UserError
from deuteron.runtime import knobs

_GROUP_PREFIX = "__grp__"


def default_cache_dir() -> str:
    """Where everything that is compiled is kept."""
    return str(config.cache_dir())


class FileCacheManager:
    """The files of one key."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.cache_dir = str(config.cache_dir() / "files" / key)

    def has_file(self, filename: str) -> bool:
        """Whether a file is there."""
        return Path(self.cache_dir, filename).exists()

    def get_file(self, filename: str) -> str | None:
        """The path of a file; None when it is not there."""
        path = Path(self.cache_dir, filename)
        return str(path) if path.exists() else None

    def put(self, data: str | bytes, filename: str, binary: bool = True) -> str:
        """Write a file at once, and give its path."""
        path = Path(self.cache_dir, filename)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, data if isinstance(data, bytes) else data.encode())
        return str(path)

    def get_group(self, filename: str) -> dict[str, str] | None:
        """The paths of files that were put as one; None unless all are there."""
        path = self.get_file(_GROUP_PREFIX + filename)
        if path is None:
            return None
        names: list[str] = json.loads(Path(path).read_text(encoding="utf-8"))["names"]
        found = {name: self.get_file(name) for name in names}
        present = {name: path for name, path in found.items() if path is not None}
        return present if len(present) == len(found) else None

    def put_group(self, filename: str, group: Mapping[str, str]) -> str:
        """Join files that are there already."""
        return self.put(json.dumps({"names": sorted(group)}), _GROUP_PREFIX + filename, False)


class RemoteCacheBackend(Protocol):
    """A store of files by name, made for one key."""

    def get(self, filenames: list[str]) -> Mapping[str, bytes]:
        """Those of the files that it has."""
        ...

    def put(self, filename: str, data: bytes) -> object:
        """Keep a file."""
        ...


class RemoteCacheManager(FileCacheManager):
    """The files of one key in the store that `knobs.cache.remote_manager_class` makes."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        make: Any = knobs.cache.remote_manager_class
        if make is None:
            raise UserError(
                "there is no remote store of files\n"
                "  expected: a class in knobs.cache.remote_manager_class\n"
                "  remedy:   set it, or use FileCacheManager"
            )
        self._store: RemoteCacheBackend = make(key)

    def get_file(self, filename: str) -> str | None:
        """The path of a local copy; None when the store does not have it."""
        data = self._store.get([filename]).get(filename)
        if data is None:
            return None
        return super().put(data, filename)

    def has_file(self, filename: str) -> bool:
        """Whether the store has a file."""
        return filename in self._store.get([filename])

    def put(self, data: str | bytes, filename: str, binary: bool = True) -> str:
        """Keep a file in the store; the path is that of a local copy."""
        self._store.put(filename, data if isinstance(data, bytes) else data.encode())
        return super().put(data, filename, binary)


def get_cache_manager(key: str) -> FileCacheManager:
    """The manager that `knobs.cache.manager_class` makes, else one of files."""
    make: Any = knobs.cache.manager_class or FileCacheManager
    return make(key)
