"""The machine code of the tile store: finds a packed tile, or a place for it, in a kernel's module.

`tile_store.py` decides what is kept and where.  A store begins with a word that is 0 when its
thread begins a launch; the *sites* follow, one for each operand that is kept: a hash index from
keys to slots, filled in order, and after all sites the slots' keys and the slots themselves.

Keeping a tile costs a trip to memory, which only pays when the tile is wanted again.  A site that
is full starts over when what it holds has been used as often as there are slots.  Otherwise the
tiles do not come back soon enough, and it is left alone for a while: new tiles go to the spare
place, which stays in the caches, and what is held may still be found.  A site whose tiles were
hardly wanted again in a whole launch rests in the kernel's next launches.
"""

from __future__ import annotations

from deuteron.backends.cpu.structs import Struct, expand

LINE_BYTES = 64
# A full site that is not used starts over after so many misses, in times its slots.
PATIENCE = 8
# For how many launches a site rests.
REST = 15

SITE = Struct(
    "Site",
    {
        # the kernel it served last, if that was for a whole launch; launches it still rests for
        "owner": "ptr", "rest": "i64",
        # slots in use, tiles found since it was empty, misses since it was full
        "used": "i64", "found": "i64", "passed": "i64",
        # two entries a slot: 0, or a slot's number plus 1
        "index": "[0 x i32]",
    },
)  # fmt: skip
INDEX_OFFSET = SITE.mirror.index.offset


def site_bytes(slots: int) -> int:
    """The length of a site."""
    return INDEX_OFFSET + 8 * slots


def tile_store_ir() -> str:
    """The functions `tile_store.open` and `tile_store.find`."""
    return expand(_TILE_STORE, (SITE,))


_TILE_STORE = f"""
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

; Whether the thread begins a launch: then its store is opened, and every site is to be emptied.
define internal i1 @tile_store.open(ptr %store) noinline nounwind {{
entry:
  %none = icmp eq ptr %store, null
  br i1 %none, label %out, label %look
look:
  %open = load i64, ptr %store
  %begins = icmp eq i64 %open, 0
  store i64 1, ptr %store
  br label %out
out:
  %result = phi i1 [ false, %entry ], [ %begins, %look ]
  ret i1 %result
}}

; Empty the site at an offset in the store; it rests when the same kernel made little use of it.
define internal void @tile_store.empty(ptr %store, i64 %at, i64 %slots,
                                       ptr %kernel) noinline nounwind {{
  %site = getelementptr i8, ptr %store, i64 %at
  %owner = get Site.owner %site
  %used = get Site.used %site
  %found = get Site.found %site
  %rest = get Site.rest %site
  %known = icmp eq ptr %owner, %kernel
  %more = icmp ugt i64 %used, %found
  %half = lshr i64 %slots, 1
  %many = icmp ugt i64 %used, %half                ; few say nothing: a worker may come late
  %wasted = and i1 %more, %many
  %useless = and i1 %known, %wasted
  %tired = icmp ne i64 %rest, 0
  %rests = and i1 %known, %tired
  %less = sub i64 %rest, 1
  %remaining = select i1 %rests, i64 %less, i64 0
  %rest1 = select i1 %useless, i64 {REST}, i64 %remaining
  %index_bytes = shl i64 %slots, 3
  %length = add i64 %index_bytes, {INDEX_OFFSET}
  call void @llvm.memset.p0.i64(ptr %site, i8 0, i64 %length, i1 false)
  set Site.owner %site, %kernel
  set Site.rest %site, %rest1
  ret void
}}

; The tile with `count` given keys, and whether it is yet to be packed there.  `site`, `known` (the
; slots' keys) and `tiles` are offsets in the store; `slots` is a power of two.
define internal {{ ptr, i1 }} @tile_store.find(ptr %store, i64 %site_at, i64 %known_at,
                                             i64 %tiles_at, i64 %slots, i64 %bytes, ptr %keys,
                                             i64 %count, ptr %spare) noinline nounwind {{
entry:
  %none = icmp eq ptr %store, null
  br i1 %none, label %pass, label %open
open:
  %site = getelementptr i8, ptr %store, i64 %site_at
  %rest = get Site.rest %site
  %rests = icmp ne i64 %rest, 0
  br i1 %rests, label %pass, label %look
look:
  %known = getelementptr i8, ptr %store, i64 %known_at
  %tiles = getelementptr i8, ptr %store, i64 %tiles_at
  %entries = shl i64 %slots, 1
  %last = sub i64 %entries, 1
  br label %mix
mix:                                              ; a multiplicative hash of the keys
  %i = phi i64 [ 0, %look ], [ %i1, %mix ]
  %hash = phi i64 [ 0, %look ], [ %hash1, %mix ]
  %keyp = getelementptr i64, ptr %keys, i64 %i
  %key = load i64, ptr %keyp
  %met = xor i64 %hash, %key
  %product = mul i64 %met, -7046029254386353131
  %high = lshr i64 %product, 32
  %hash1 = xor i64 %product, %high
  %i1 = add i64 %i, 1
  %mixing = icmp ult i64 %i1, %count
  br i1 %mixing, label %mix, label %probe
probe:
  %at = phi i64 [ %hash1, %mix ], [ %at1, %differs ]
  %place = and i64 %at, %last
  %itemp = at Site.index[%place] %site
  %item = load i32, ptr %itemp
  %free = icmp eq i32 %item, 0
  br i1 %free, label %missing, label %compare
compare:
  %item64 = zext i32 %item to i64
  %slot = sub i64 %item64, 1
  %row = mul i64 %slot, %count
  %its = getelementptr i64, ptr %known, i64 %row
  br label %equal
equal:
  %j = phi i64 [ 0, %compare ], [ %j1, %alike ]
  %minep = getelementptr i64, ptr %keys, i64 %j
  %mine = load i64, ptr %minep
  %yoursp = getelementptr i64, ptr %its, i64 %j
  %yours = load i64, ptr %yoursp
  %same = icmp eq i64 %mine, %yours
  br i1 %same, label %alike, label %differs
alike:
  %j1 = add i64 %j, 1
  %comparing = icmp ult i64 %j1, %count
  br i1 %comparing, label %equal, label %hit
differs:
  %at1 = add i64 %place, 1
  br label %probe
hit:
  %found = get Site.found %site
  %found1 = add i64 %found, 1
  set Site.found %site, %found1
  %distance = mul i64 %slot, %bytes
  %tile = getelementptr i8, ptr %tiles, i64 %distance
  %old = insertvalue {{ ptr, i1 }} {{ ptr poison, i1 false }}, ptr %tile, 0
  ret {{ ptr, i1 }} %old

missing:
  %used = get Site.used %site
  %room = icmp ult i64 %used, %slots
  br i1 %room, label %take, label %full
full:
  %uses = get Site.found %site
  %passed = get Site.passed %site
  %most = mul i64 %slots, {PATIENCE}
  %useful = icmp uge i64 %uses, %slots
  %waited = icmp uge i64 %passed, %most
  %restart = or i1 %useful, %waited
  br i1 %restart, label %clear, label %wait
wait:
  %passed1 = add i64 %passed, 1
  set Site.passed %site, %passed1
  br label %pass
pass:
  %elsewhere = insertvalue {{ ptr, i1 }} {{ ptr poison, i1 true }}, ptr %spare, 0
  ret {{ ptr, i1 }} %elsewhere
clear:
  %index_bytes = shl i64 %slots, 3
  %length = add i64 %index_bytes, {INDEX_OFFSET}
  call void @llvm.memset.p0.i64(ptr %site, i8 0, i64 %length, i1 false)
  %home = and i64 %hash1, %last
  %homep = at Site.index[%home] %site
  br label %take
take:
  %fresh = phi i64 [ %used, %missing ], [ 0, %clear ]
  %indexp = phi ptr [ %itemp, %missing ], [ %homep, %clear ]
  %fresh1 = add i64 %fresh, 1
  set Site.used %site, %fresh1
  %number = trunc i64 %fresh1 to i32
  store i32 %number, ptr %indexp
  %keys_at = mul i64 %fresh, %count
  %to = getelementptr i64, ptr %known, i64 %keys_at
  br label %copy
copy:
  %k = phi i64 [ 0, %take ], [ %k1, %copy ]
  %fromp = getelementptr i64, ptr %keys, i64 %k
  %word = load i64, ptr %fromp
  %top = getelementptr i64, ptr %to, i64 %k
  store i64 %word, ptr %top
  %k1 = add i64 %k, 1
  %copying = icmp ult i64 %k1, %count
  br i1 %copying, label %copy, label %taken
taken:
  %far = mul i64 %fresh, %bytes
  %behind = getelementptr i8, ptr %tiles, i64 %far
  %new = insertvalue {{ ptr, i1 }} {{ ptr poison, i1 true }}, ptr %behind, 0
  ret {{ ptr, i1 }} %new
}}
"""
