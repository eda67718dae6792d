"""Arenas in machine code: the memory a thread works in during a launch, as LLVM IR text.

An arena has two blocks from malloc that only grow, the scratch memory of kernels and the tile store
(`tile_store.py`).  Each worker has one; callers take theirs from a list, which the GIL guards.

    scratch_memory(arena, bytes) -> memory        null when there is none
    tile_store(arena, bytes, begins) -> memory    null when there is none, or none is wanted
    take_arena(pool) -> arena                     for a caller; null when there is no memory
    give_arena(pool, arena)
"""

from __future__ import annotations

import ctypes

from deuteron.backends.cpu.structs import Struct

GRAIN_BYTES = 1 << 16  # a block's size is a multiple of it

# Memory from malloc and its usable bytes.
BLOCK = Struct("Block", {"memory": "ptr", "size": "i64"})
# The scratch memory and the tile store, and the next arena of the free list.
ARENA = Struct("Arena", {"blocks": "[2 x %Block]", "next": "ptr"}, (BLOCK,))
ARENA_STRUCTS = (BLOCK, ARENA)
_SCRATCH, _STORE = 0, 1


def arena_ir() -> str:
    """The functions."""
    return _ARENA


_ARENA = f"""
declare ptr @malloc(i64)
declare void @free(ptr)

; The block's memory, 64-byte aligned and at least `bytes` long, or null when there is none.
; Untouched pages cost nothing: large blocks come from the system lazily.
define internal ptr @block_memory(ptr %block, i64 %bytes) {{
entry:
  %size = get Block.size %block
  %enough = icmp uge i64 %size, %bytes
  br i1 %enough, label %align, label %grow
grow:
  %old = get Block.memory %block
  set Block.memory %block, null
  set Block.size %block, 0
  call void @free(ptr %old)
  %up = add i64 %bytes, {GRAIN_BYTES - 1}
  %rounded = and i64 %up, {-GRAIN_BYTES}
  %total = add i64 %rounded, 64
  %new = call ptr @malloc(i64 %total)
  %none = icmp eq ptr %new, null
  br i1 %none, label %fail, label %keep
keep:
  set Block.memory %block, %new
  set Block.size %block, %rounded
  br label %align
align:
  %memory = get Block.memory %block
  %address = ptrtoint ptr %memory to i64
  %above = add i64 %address, 64
  %aligned = and i64 %above, -64
  %result = inttoptr i64 %aligned to ptr
  ret ptr %result
fail:
  ret ptr null
}}

define internal ptr @scratch_memory(ptr %arena, i64 %bytes) {{
  %block = at Arena.blocks[{_SCRATCH}] %arena
  %memory = call ptr @block_memory(ptr %block, i64 %bytes)
  ret ptr %memory
}}

; The store's first word is 0 when its thread begins a launch.  Kernels run without a store too.
define internal ptr @tile_store(ptr %arena, i64 %bytes, i1 %begins) {{
entry:
  %unwanted = icmp eq i64 %bytes, 0
  br i1 %unwanted, label %none, label %wanted
wanted:
  %block = at Arena.blocks[{_STORE}] %arena
  %store = call ptr @block_memory(ptr %block, i64 %bytes)
  %failed = icmp eq ptr %store, null
  br i1 %failed, label %none, label %given
given:
  br i1 %begins, label %reset, label %out
reset:
  store i64 0, ptr %store
  br label %out
out:
  ret ptr %store
none:
  ret ptr null
}}

define internal ptr @take_arena(ptr %pool) {{
entry:
  %first = get Pool.free_arenas %pool
  %empty = icmp eq ptr %first, null
  br i1 %empty, label %new, label %pop
pop:
  %next = get Arena.next %first
  set Pool.free_arenas %pool, %next
  ret ptr %first
new:
  %arena = call ptr @malloc(i64 {ctypes.sizeof(ARENA.mirror)})
  %none = icmp eq ptr %arena, null
  br i1 %none, label %out, label %clear
clear:
  store %Arena zeroinitializer, ptr %arena
  br label %out
out:
  ret ptr %arena
}}

define internal void @give_arena(ptr %pool, ptr %arena) {{
  %first = get Pool.free_arenas %pool
  set Arena.next %arena, %first
  set Pool.free_arenas %pool, %arena
  ret void
}}
"""
