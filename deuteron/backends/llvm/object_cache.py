"""The disk store of compiled kernels: what lets a second process start without compiling.

An entry is one file, named by the hash of the kernel's key: a header, the metadata as JSON, the
object.  Writers never touch an entry in place (a temporary file is renamed over it), and readers
believe nothing whose checksum does not match.  So concurrent processes, a kill in mid-write, a lost
tail after a power cut or a foreign file can only cost a compilation, never give a wrong kernel.
Whatever is wrong with the cache is told once, as a CacheWarning, and is no error.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import struct
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deuteron import config
from deuteron.errors import call_site

LIMIT_BYTES = 512 << 20
"""Size above which the entries unused for longest are removed."""

# Magic, version, bytes of the metadata and of the object, SHA-256 of the file's name and of both.
_HEADER = struct.Struct("<8sIIQ32s")
_MAGIC = b"DEUTOBJ\n"
_VERSION = 2
_SUFFIX = ".dobj"
_TEMPORARY_SUFFIX = ".tmp"
_ABANDONED_AFTER_S = 3600.0
_TOUCH_AFTER_S = 3600.0
# Windows' errors for a file that another process has open: access denied, sharing violation.
_IN_USE = (5, 32)
_WARNED: set[tuple[str, Path]] = set()  # what was wrong, and where


class CacheWarning(UserWarning):
    """Something is wrong with the disk cache; kernels are compiled anew where it fails."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A compiled kernel as stored: JSON metadata and the object file."""

    metadata: dict[str, Any]
    obj: bytes


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """Where the cache is, how many kernels it holds and the bytes they take."""

    path: Path
    entries: int
    bytes: int


def load(kernel_key: str) -> Entry | None:
    """The entry stored under a key, or None when there is none that can be trusted.

    A damaged one gives a CacheWarning.
    """
    if not config.cache_enabled():
        return None
    path = _path(kernel_key)
    try:
        with open(path, "rb") as file:
            data = file.read()
            modified = os.fstat(file.fileno()).st_mtime
    except OSError:
        return None
    entry = _decode(data, path.stem)
    if entry is None and not _is_of_another_version(data):
        _warn_once(
            path.parent,
            "holds a damaged entry",
            f"{path.name} is not what was written there; its kernel is compiled anew, and it is"
            " replaced",
            "nothing, unless it happens again: then look after the disk",
        )
    if entry is not None and time.time() - modified > _TOUCH_AFTER_S:
        with contextlib.suppress(OSError):  # a read-only cache is still a cache
            os.utime(path)  # recently used: `trim` removes the oldest
    return entry


def store(kernel_key: str, metadata: Mapping[str, Any], obj: bytes) -> None:
    """Keep a compiled kernel.  A cache that cannot be written gives one CacheWarning, no error."""
    if not config.cache_enabled():
        return
    path = _path(kernel_key)
    written = write_atomically(path, _encode(metadata, obj, path.stem))
    # Keys are hashes, so this is one store in 256, whichever process it happens in.
    if written and path.stem.endswith("00"):
        trim(LIMIT_BYTES)


def write_atomically(path: Path, data: bytes) -> bool:
    """Make `path` hold `data`, entirely or not at all; readers see the old or the new file.

    Returns False, with a CacheWarning the first time in a directory, when the file system refuses.
    Windows refuses to replace a file that is open elsewhere: what is there then stays.
    """
    # Not the process id: containers that share a cache directory share those too.
    temporary = path.with_name(f".{path.stem}-{os.urandom(8).hex()}{_TEMPORARY_SUFFIX}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)  # its content gets executed
        try:
            temporary.write_bytes(data)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
    except OSError as error:
        if getattr(error, "winerror", None) in _IN_USE and path.exists():
            return True  # another process reads it just now: it is there
        _warn_once(
            path.parent,
            "cannot be written",
            f"{error.strerror or error}; until then every process compiles its kernels anew",
            "free space or permissions there, or set DEUTERON_CACHE_DIR to another directory",
        )
        return False
    return True


def trim(limit_bytes: int) -> None:
    """Bring the cache under a size, least recently used first, and remove abandoned writes."""
    now = time.time()
    for path, status in _scan(_TEMPORARY_SUFFIX):
        if now - status.st_mtime > _ABANDONED_AFTER_S:
            _remove(path)
    entries = sorted(_scan(_SUFFIX), key=lambda entry: entry[1].st_mtime)
    excess = sum(status.st_size for _, status in entries) - limit_bytes
    if excess <= 0:
        return
    excess += limit_bytes // 4  # room to grow, so that the next removal is not the next store's
    for path, status in entries:
        if excess <= 0:
            break
        _remove(path)
        excess -= status.st_size


def cache_info() -> CacheInfo:
    """The place and size of the cache."""
    sizes = [status.st_size for _, status in _scan(_SUFFIX)]
    return CacheInfo(_directory(), len(sizes), sum(sizes))


def clear() -> None:
    """Remove every entry."""
    for suffix in (_SUFFIX, _TEMPORARY_SUFFIX):
        for path, _ in _scan(suffix):
            _remove(path)


def _directory() -> Path:
    return config.cache_dir() / "objects"


def _path(kernel_key: str) -> Path:
    return _directory() / (
        hashlib.sha256(kernel_key.encode("utf-8", "surrogatepass")).hexdigest() + _SUFFIX
    )


def _encode(metadata: Mapping[str, Any], obj: bytes, name: str) -> bytes:
    head = json.dumps(dict(metadata), separators=(",", ":")).encode()
    digest = hashlib.sha256(name.encode() + head + obj).digest()
    return _HEADER.pack(_MAGIC, _VERSION, len(head), len(obj), digest) + head + obj


def _decode(data: bytes, name: str) -> Entry | None:
    if len(data) < _HEADER.size:
        return None
    magic, version, head_bytes, obj_bytes, digest = _HEADER.unpack_from(data)
    body = data[_HEADER.size :]
    if (magic, version) != (_MAGIC, _VERSION) or len(body) != head_bytes + obj_bytes:
        return None
    if hashlib.sha256(name.encode() + body).digest() != digest:
        return None
    return Entry(json.loads(body[:head_bytes]), body[head_bytes:])


def _is_of_another_version(data: bytes) -> bool:
    """Whether an entry was written by another version of this package, and is no damage."""
    if len(data) < _HEADER.size:
        return False
    magic, version, *_ = _HEADER.unpack_from(data)
    return magic == _MAGIC and version != _VERSION


def _scan(suffix: str) -> Iterator[tuple[Path, os.stat_result]]:
    """The files of the cache with a suffix; one removed meanwhile by another process is skipped."""
    try:
        names = [name for name in os.listdir(_directory()) if name.endswith(suffix)]
    except OSError:
        return
    for name in names:
        path = _directory() / name
        with contextlib.suppress(OSError):
            yield path, path.stat()


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def _warn_once(directory: Path, problem: str, got: str, remedy: str) -> None:
    """Warn at the call that met the problem, the first time that it is met in a directory."""
    if (problem, directory) in _WARNED:
        return
    _WARNED.add((problem, directory))
    place = call_site()
    warnings.warn_explicit(
        f"the cache {directory} {problem}\n  got:      {got}\n  remedy:   {remedy}",
        CacheWarning,
        place.file,
        place.line,
    )
