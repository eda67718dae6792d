"""The disk store of kernels: what it gives back, and all that may happen to its files."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import time
import warnings
from pathlib import Path

import pytest

from deuteron.backends.llvm import object_cache
from deuteron.backends.llvm.object_cache import CacheWarning, Entry

METADATA = {"name": "add", "scratch_bytes": 4096, "params": [["x", "pointer", "float32"]]}
OBJECT = bytes(range(256)) * 40


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this test's entries lie."""
    monkeypatch.setenv("DEUTERON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("DEUTERON_DISABLE_CACHE", raising=False)
    monkeypatch.setattr(object_cache, "_WARNED", set())
    return tmp_path / "cache" / "objects"


def only_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def test_a_stored_kernel_comes_back(folder: Path):
    object_cache.store("key", METADATA, OBJECT)
    assert object_cache.load("key") == Entry(METADATA, OBJECT)
    assert object_cache.load("another key") is None
    only_file(folder)


def test_storing_again_replaces():
    object_cache.store("key", METADATA, OBJECT)
    object_cache.store("key", {"name": "new"}, b"")
    assert object_cache.load("key") == Entry({"name": "new"}, b"")


def test_keys_may_be_any_text():
    object_cache.store("def ä():\n  '\udcff'", METADATA, OBJECT)
    assert object_cache.load("def ä():\n  '\udcff'") is not None


def test_a_disabled_cache_keeps_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch):
    object_cache.store("key", METADATA, OBJECT)
    monkeypatch.setenv("DEUTERON_DISABLE_CACHE", "1")
    assert object_cache.load("key") is None
    object_cache.store("other", METADATA, OBJECT)
    only_file(folder)


def test_info_and_clear(folder: Path):
    assert object_cache.cache_info() == object_cache.CacheInfo(folder, 0, 0)
    object_cache.store("a", METADATA, OBJECT)
    object_cache.store("b", METADATA, OBJECT)
    (folder / ".left-behind.tmp").write_bytes(b"...")
    info = object_cache.cache_info()
    assert (info.path, info.entries) == (folder, 2)
    assert info.bytes == sum(path.stat().st_size for path in folder.glob("*.dobj"))
    object_cache.clear()
    assert list(folder.iterdir()) == []


def test_only_the_user_may_write_what_gets_executed(folder: Path):
    object_cache.store("key", METADATA, OBJECT)
    assert folder.stat().st_mode & 0o077 == 0


# -- damaged entries ------------------------------------------------------------------------
def check_replaceable(path: Path, *, damaged: bool = True) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert object_cache.load("key") is None
        assert object_cache.load("key") is None
    assert [str(w.message).split("\n")[0] for w in caught] == (
        [f"the cache {path.parent} holds a damaged entry"] if damaged else []
    )
    object_cache.store("key", METADATA, OBJECT)
    assert object_cache.load("key") == Entry(METADATA, OBJECT)
    assert path.exists()


@pytest.mark.parametrize("keep", [0, 1, 30, 56, 60, -1])
def test_a_truncated_entry_is_a_miss(keep: int, folder: Path):
    object_cache.store("key", METADATA, OBJECT)
    path = only_file(folder)
    path.write_bytes(path.read_bytes()[:keep])
    check_replaceable(path)


@pytest.mark.filterwarnings("ignore:the cache .* holds a damaged entry")
def test_a_flipped_bit_anywhere_is_a_miss(folder: Path):
    object_cache.store("key", METADATA, OBJECT)
    path = only_file(folder)
    intact = path.read_bytes()
    for position in [*range(80), *range(80, len(intact), 997), len(intact) - 1]:
        damaged = bytearray(intact)
        damaged[position] ^= 1
        path.write_bytes(damaged)
        assert object_cache.load("key") is None, position
    object_cache._WARNED.clear()
    check_replaceable(path)


def test_a_longer_entry_is_a_miss(folder: Path):
    object_cache.store("key", METADATA, OBJECT)
    path = only_file(folder)
    path.write_bytes(path.read_bytes() + b"\0")
    check_replaceable(path)


def test_another_version_is_a_miss(folder: Path, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as older:
        older.setattr(object_cache, "_VERSION", 0)
        object_cache.store("key", METADATA, OBJECT)
    check_replaceable(only_file(folder), damaged=False)


# -- disks that refuse ----------------------------------------------------------------------
def check_one_warning() -> None:
    with pytest.warns(
        CacheWarning, match=r"the cache .* cannot be written\n(.|\n)*remedy"
    ) as caught:
        object_cache.store("key", METADATA, OBJECT)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        object_cache.store("another", METADATA, OBJECT)
        assert object_cache.load("key") is None
        assert object_cache.cache_info().entries == 0
        object_cache.clear()


def test_a_file_in_place_of_the_folder(folder: Path):
    folder.parent.parent.mkdir(exist_ok=True)
    folder.parent.write_text("not a folder")
    check_one_warning()


def test_a_folder_in_place_of_an_entry(folder: Path):
    object_cache.store("key", METADATA, OBJECT)
    path = only_file(folder)
    path.unlink()
    (path / "inside").mkdir(parents=True)
    assert object_cache.load("key") is None
    with pytest.warns(CacheWarning):
        object_cache.store("key", METADATA, OBJECT)
    assert [entry.name for entry in folder.iterdir()] == [path.name]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write")
def test_a_folder_without_write_permission(folder: Path):
    folder.mkdir(parents=True)
    folder.chmod(0o500)
    check_one_warning()


def test_a_full_disk_while_writing(folder: Path, monkeypatch: pytest.MonkeyPatch):
    def write_some(self: Path, data: bytes) -> int:
        with open(self, "wb") as file:
            file.write(data[:100])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", write_some)
    check_one_warning()
    assert list(folder.iterdir()) == []


def test_a_full_disk_while_renaming(folder: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", refuse)
    check_one_warning()
    assert list(folder.iterdir()) == []


def test_an_old_entry_survives_a_full_disk(monkeypatch: pytest.MonkeyPatch):
    object_cache.store("key", METADATA, OBJECT)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.warns(CacheWarning, match="No space left"):
        object_cache.store("key", {}, b"")
    assert object_cache.load("key") == Entry(METADATA, OBJECT)


# -- size -----------------------------------------------------------------------------------
def store_aged(key: str, age_s: float) -> None:
    object_cache.store(key, {}, OBJECT)
    then = time.time() - age_s
    os.utime(object_cache._path(key), (then, then))


def test_trim_removes_the_least_recently_used():
    for age in range(8):
        store_aged(f"{age} days old", age * 86400.0)
    assert object_cache.load("7 days old") is not None  # used: now the youngest
    object_cache.trim(4 * len(OBJECT) + 1000)
    left = {age for age in range(8) if object_cache.load(f"{age} days old")}
    assert left == {0, 1, 7}  # three quarters of what four entries take
    object_cache.trim(4 * len(OBJECT) + 1000)
    assert object_cache.cache_info().entries == 3


def test_trim_removes_abandoned_writes_only(folder: Path):
    object_cache.store("key", METADATA, OBJECT)
    for name, age_s in (("old", 7200), ("new", 0)):
        path = folder / f".{name}.tmp"
        path.write_bytes(b"half")
        then = time.time() - age_s
        os.utime(path, (then, then))
    object_cache.trim(1 << 30)
    assert sorted(path.name for path in folder.glob(".*")) == [".new.tmp"]
    assert object_cache.load("key") is not None


def test_some_stores_trim(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(object_cache, "LIMIT_BYTES", 20 * len(OBJECT))
    for number in range(1000):
        object_cache.store(f"kernel {number}", {}, OBJECT)
    assert object_cache.cache_info().entries < 1000


# -- many processes -------------------------------------------------------------------------
def content(writer: int) -> tuple[dict[str, int], bytes]:
    return {"writer": writer}, bytes([writer]) * (10_000 + writer)


def write_and_read(writer: int, rounds: int, bad: multiprocessing.Queue) -> None:
    for _ in range(rounds):
        object_cache.store("shared", *content(writer))
        entry = object_cache.load("shared")
        if entry is None or (entry.metadata, entry.obj) != content(entry.metadata["writer"]):
            bad.put(writer)
    bad.put(None)


def test_concurrent_writers_and_readers(folder: Path):
    context = multiprocessing.get_context("spawn")
    bad = context.Queue()
    writers = [context.Process(target=write_and_read, args=(n, 60, bad)) for n in range(3)]
    for writer in writers:
        writer.start()
    assert [bad.get(timeout=60) for _ in writers] == [None] * 3
    for writer in writers:
        writer.join()
    assert only_file(folder).suffix == ".dobj"


def die_in_mid_write() -> None:
    def write_half(self: Path, data: bytes) -> int:
        with open(self, "wb") as file:
            file.write(data[: len(data) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("unreachable")

    Path.write_bytes = write_half  # type: ignore[method-assign]
    object_cache.store("key", {"name": "never finished"}, OBJECT)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here")
@pytest.mark.parametrize("stored_before", [False, True])
def test_a_writer_killed_in_mid_write(stored_before: bool, folder: Path):
    if stored_before:
        object_cache.store("key", METADATA, OBJECT)
    writer = multiprocessing.get_context("spawn").Process(target=die_in_mid_write)
    writer.start()
    writer.join()
    assert writer.exitcode == -signal.SIGKILL
    assert len(list(folder.glob(".*.tmp"))) == 1
    assert object_cache.load("key") == (Entry(METADATA, OBJECT) if stored_before else None)
    object_cache.store("key", METADATA, OBJECT)
    assert object_cache.load("key") == Entry(METADATA, OBJECT)
    object_cache.clear()
    assert list(folder.iterdir()) == []
