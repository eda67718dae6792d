"""The thread pool's machine code, as LLVM IR text.

One `%Pool` lives as long as the process.  Its heart is `state`, one word that packs a generation
(32 bits), the number of chunks of the running job (16) and how many are claimed (16).  A thread
claims a chunk by a compare-and-swap of that word, so nobody waits for a worker that did not claim:
the caller does whatever is left, and then waits only for chunks begun by others.

Which chunk it is, is a second question.  Neighbouring programs share data, so each thread has a
range of the chunks, and takes from another's only when its own is used up.  There is a chunk for
every claim, so one look at every range finds it.

Waking a thread costs more than a small kernel takes.  So each kernel has a *pace*, the nanoseconds
a program took last time (a double, 0 when not known), and a launch expected to be over before the
workers could help does not call them.

The functions:

    pool_run(pool, kernel, args, programs, scratch_bytes, store_bytes, pace) -> status
        Run the kernel over `programs` program ids.  Called with the GIL held; releases it.
    pool_worker(pool, tid, parked) -> why
        A worker's life.  Called without the GIL; returns when the worker is to retire, or to park
        in Python (no futex) until `pool_wake` is due.  `parked` says that it comes back from there.
    pool_wake(pool, count)
        Wake up to `count` sleeping workers.
    pool_set_threads(pool, threads) -> done
        Change how many threads take part; 0 while a job is running.

`native.py` declares the functions of CPython that are called here.
"""

from __future__ import annotations

from deuteron.backends.cpu.arena_ir import ARENA, ARENA_STRUCTS, arena_ir
from deuteron.backends.cpu.sleep_ir import sleep_ir
from deuteron.backends.cpu.structs import Struct

MAX_THREADS = 1024
# A thread's share is cut into so many chunks, or into as many as take `CHUNK_NS` each: whoever ends
# first waits for one chunk of another.
CHUNKS_PER_THREAD = 8
CHUNK_NS = 50_000
MAX_CHUNKS = 1 << 14
SPINS = 1000  # pauses before a thread sleeps: 20 to 70 µs
AWAKE_NS = 3_000  # a launch shorter than this is not shared with workers that spin,
ASLEEP_NS = 40_000  # and one shorter than this not with workers that sleep

STATUS_OK = 0
STATUS_NO_MEMORY = 1
STATUS_OVER_LIMIT = 2

WORKER_RETIRED = 0
WORKER_PARKED = 1


def pool_ir(machine: str, futex: bool) -> str:
    """The pool's module for `machine` ("x86_64", "aarch64" or another)."""
    return sleep_ir(machine, futex) + arena_ir() + _POOL


POOL = Struct(
    "Pool",
    {
        # generation:32 | chunks:16 | claimed:16, on a cache line of its own
        "state": "i64", "pad_state": "[56 x i8]",
        # chunks finished; whether the caller sleeps until all are
        "done": "i32", "waiting": "i32", "pad_done": "[56 x i8]",
        # the word that workers sleep on, and how many do
        "wake": "i32", "sleepers": "i32",
        # who may take part, the caller included, and how many exist; pauses before sleep; owned
        "threads": "i32", "started": "i32", "spins": "i32", "busy": "i32", "pad_wake": "[40 x i8]",
        # the job; `no_memory` when a worker had no scratch for it
        "kernel": "ptr", "args": "ptr", "programs": "i64", "chunk": "i64", "scratch_bytes": "i64",
        "store_bytes": "i64", "no_memory": "i32",
        # arenas of callers, and the most that all threads may have together
        "free_arenas": "ptr", "scratch_limit": "i64", "store_limit": "i64",
        # Python functions: make the missing workers; wake those that parked
        "start": "ptr", "notify": "ptr",
        # memory of the workers, by number
        "arenas": f"[{MAX_THREADS} x %Arena]",
        # the job's ranges of chunks, and how many of each were taken (or more, when all were)
        "ranges": "i64", "taken": f"[{MAX_THREADS} x i64]",
    },
    (ARENA,),
)  # fmt: skip
POOL_STRUCTS = (*ARENA_STRUCTS, POOL)


_POOL = f"""
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.fptosi.sat.i64.f64(double)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

; Drop the result of a Python call, or the exception it ended in.
define internal void @forget(ptr %result) {{
entry:
  %failed = icmp eq ptr %result, null
  br i1 %failed, label %clear, label %drop
clear:
  call void @PyErr_Clear()
  ret void
drop:
  call void @Py_DecRef(ptr %result)
  ret void
}}

; ---- claiming -----------------------------------------------------------------------------------

define internal i1 @has_work(i64 %state) {{
  %claimed = and i64 %state, 65535
  %chunks = call i64 @chunks_of(i64 %state)
  %has = icmp ult i64 %claimed, %chunks
  ret i1 %has
}}

define internal i64 @chunks_of(i64 %state) {{
  %shifted = lshr i64 %state, 16
  %chunks = and i64 %shifted, 65535
  ret i64 %chunks
}}

; The first chunk of a range.
define internal i64 @range_begin(i64 %range, i64 %ranges, i64 %chunks) {{
  %product = mul i64 %range, %chunks
  %begin = udiv i64 %product, %ranges
  ret i64 %begin
}}

; The chunk of a claim, from the range of thread `tid` if there is one left.
define internal i64 @take_chunk(ptr %pool, i64 %tid, i64 %chunks) {{
entry:
  %ranges = get Pool.ranges %pool
  br label %look
look:
  %from = phi i64 [ %tid, %entry ], [ %from1, %look ]
  %range = urem i64 %from, %ranges
  %from1 = add i64 %range, 1
  %begin = call i64 @range_begin(i64 %range, i64 %ranges, i64 %chunks)
  %end = call i64 @range_begin(i64 %from1, i64 %ranges, i64 %chunks)
  %takenp = at Pool.taken[%range] %pool
  %taken = atomicrmw add ptr %takenp, i64 1 monotonic
  %chunk = add i64 %begin, %taken
  %left = icmp ult i64 %chunk, %end
  br i1 %left, label %out, label %look
out:
  ret i64 %chunk
}}

; Claim and run chunks until none is left, as thread `tid` with its `arena`, then report them done.
; A job's fields are read after its claim: they stay as they are until every chunk is reported.
; Returns the number of chunks.
define internal i64 @work(ptr %pool, i64 %tid, ptr %arena) {{
entry:
  %no_memoryp = at Pool.no_memory %pool
  %first = load atomic i64, ptr %pool acquire, align 8
  br label %look
look:
  %state = phi i64 [ %first, %entry ], [ %seen, %try ], [ %later, %next ]
  %count = phi i64 [ 0, %entry ], [ %count, %try ], [ %count1, %next ]
  %has = call i1 @has_work(i64 %state)
  br i1 %has, label %try, label %report
try:
  %claimed = add i64 %state, 1
  %pair = cmpxchg ptr %pool, i64 %state, i64 %claimed seq_cst seq_cst
  %seen = extractvalue {{ i64, i1 }} %pair, 0
  %won = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %won, label %prepare, label %look
prepare:
  %bytes = get Pool.scratch_bytes %pool
  %scratch = call ptr @scratch_memory(ptr %arena, i64 %bytes)
  %none = icmp eq ptr %scratch, null
  br i1 %none, label %no_memory, label %run
no_memory:
  store atomic i32 1, ptr %no_memoryp monotonic, align 4
  br label %next
run:
  %begins = icmp eq i64 %count, 0
  %store_bytes = get Pool.store_bytes %pool
  %store = call ptr @tile_store(ptr %arena, i64 %store_bytes, i1 %begins)
  %kernel = get Pool.kernel %pool
  %args = get Pool.args %pool
  %programs = get Pool.programs %pool
  %chunk = get Pool.chunk %pool
  %chunks = call i64 @chunks_of(i64 %state)
  %index = call i64 @take_chunk(ptr %pool, i64 %tid, i64 %chunks)
  %begin = mul i64 %index, %chunk
  %past = add i64 %begin, %chunk
  %end = call i64 @llvm.smin.i64(i64 %past, i64 %programs)
  call void %kernel(ptr %args, i64 %begin, i64 %end, ptr %scratch, ptr %store)
  br label %next
next:
  %count1 = add i64 %count, 1
  %later = load atomic i64, ptr %pool acquire, align 8
  br label %look
report:
  %idle = icmp eq i64 %count, 0
  br i1 %idle, label %out, label %add
add:
  %donep = at Pool.done %pool
  %waitingp = at Pool.waiting %pool
  %count32 = trunc i64 %count to i32
  %before = atomicrmw add ptr %donep, i32 %count32 seq_cst
  %waiting = load atomic i32, ptr %waitingp seq_cst, align 4
  %asleep = icmp ne i32 %waiting, 0
  br i1 %asleep, label %wake, label %out
wake:
  call void @wake_on(ptr %donep, i32 1)
  br label %out
out:
  ret i64 %count
}}

; ---- a worker -----------------------------------------------------------------------------------

define i32 @pool_worker(ptr %pool, i32 %tid, i32 %parked) {{
entry:
  %wakep = at Pool.wake %pool
  %sleepersp = at Pool.sleepers %pool
  %threadsp = at Pool.threads %pool
  %number = zext i32 %tid to i64
  %arena = at Pool.arenas[%number] %pool
  %spins = get Pool.spins %pool
  %back = icmp eq i32 %parked, {WORKER_PARKED}
  br i1 %back, label %woke, label %look
look:
  %spun = phi i32 [ 0, %entry ], [ 0, %run ], [ %spun1, %spin ], [ 0, %woke ]
  ; `threads` is read after `state`: it only changes between jobs, so it is this job's.
  %state = load atomic i64, ptr %pool acquire, align 8
  %threads = load atomic i32, ptr %threadsp acquire, align 4
  %wanted = icmp slt i32 %tid, %threads
  br i1 %wanted, label %check, label %retire
check:
  %has = call i1 @has_work(i64 %state)
  br i1 %has, label %run, label %idle
run:
  %ran = call i64 @work(ptr %pool, i64 %number, ptr %arena)
  br label %look
idle:
  %spun1 = add i32 %spun, 1
  %again = icmp slt i32 %spun1, %spins
  br i1 %again, label %spin, label %sleep
spin:
  call void @pause()
  br label %look
sleep:
  ; Either the launching thread sees this sleeper, or this thread sees its new state.
  %wake = load atomic i32, ptr %wakep seq_cst, align 4
  %s0 = atomicrmw add ptr %sleepersp, i32 1 seq_cst
  %now = load atomic i64, ptr %pool seq_cst, align 8
  %quiet = icmp eq i64 %now, %state
  br i1 %quiet, label %doze, label %woke
doze:
  %slept = call i1 @sleep_on(ptr %wakep, i32 %wake)
  br i1 %slept, label %woke, label %park
woke:
  %s1 = atomicrmw sub ptr %sleepersp, i32 1 seq_cst
  br label %look
park:
  ret i32 {WORKER_PARKED}                       ; still counted as a sleeper
retire:
  ret i32 {WORKER_RETIRED}
}}

; ---- a launch -----------------------------------------------------------------------------------

; Make this job visible to the workers and wake those asleep.  The GIL is held.
define internal i32 @publish(ptr %pool, ptr %kernel, ptr %args, i64 %programs, i64 %bytes,
                             i64 %store_bytes, i32 %threads, ptr %pace) {{
entry:
  %donep = at Pool.done %pool
  %waitingp = at Pool.waiting %pool
  %threads64 = zext i32 %threads to i64
  %least = mul i64 %threads64, {CHUNKS_PER_THREAD}
  %time = call double @expected_ns(i64 %programs, ptr %pace)
  %pieces = fdiv double %time, {CHUNK_NS}.0
  %whole = call i64 @llvm.fptosi.sat.i64.f64(double %pieces)
  %bounded = call i64 @llvm.smin.i64(i64 %whole, i64 {MAX_CHUNKS})
  %most = call i64 @llvm.smax.i64(i64 %bounded, i64 %least)
  %wish = call i64 @llvm.smin.i64(i64 %most, i64 %programs)
  %up = add i64 %programs, %wish
  %up1 = sub i64 %up, 1
  %chunk = sdiv i64 %up1, %wish
  %sum = add i64 %programs, %chunk
  %sum1 = sub i64 %sum, 1
  %chunks = sdiv i64 %sum1, %chunk
  set Pool.kernel %pool, %kernel
  set Pool.args %pool, %args
  set Pool.programs %pool, %programs
  set Pool.chunk %pool, %chunk
  set Pool.scratch_bytes %pool, %bytes
  set Pool.store_bytes %pool, %store_bytes
  set Pool.no_memory %pool, 0
  %ranges = call i64 @llvm.smin.i64(i64 %threads64, i64 %chunks)
  set Pool.ranges %pool, %ranges
  %taken = at Pool.taken[0] %pool
  %taken_bytes = shl i64 %ranges, 3
  call void @llvm.memset.p0.i64(ptr %taken, i8 0, i64 %taken_bytes, i1 false)
  store atomic i32 0, ptr %donep monotonic, align 4
  store atomic i32 0, ptr %waitingp monotonic, align 4
  %before = load atomic i64, ptr %pool monotonic, align 8
  %generation = lshr i64 %before, 32
  %generation1 = add i64 %generation, 1
  %high = shl i64 %generation1, 32
  %middle = shl i64 %chunks, 16
  %state = or i64 %high, %middle
  store atomic i64 %state, ptr %pool seq_cst, align 8
  %chunks32 = trunc i64 %chunks to i32
  ret i32 %chunks32
}}

define internal i32 @sleepers(ptr %pool) {{
  %sleepersp = at Pool.sleepers %pool
  %sleepers = load atomic i32, ptr %sleepersp seq_cst, align 4
  ret i32 %sleepers
}}

define void @pool_wake(ptr %pool, i32 %count) {{
  %wakep = at Pool.wake %pool
  %w = atomicrmw add ptr %wakep, i32 1 seq_cst
  call void @wake_on(ptr %wakep, i32 %count)
  ret void
}}

; Change the number of threads, unless a job is running: then 0.
define i32 @pool_set_threads(ptr %pool, i32 %threads) {{
entry:
  %threadsp = at Pool.threads %pool
  %busyp = at Pool.busy %pool
  %pair = cmpxchg ptr %busyp, i32 0, i32 1 seq_cst seq_cst
  %won = extractvalue {{ i32, i1 }} %pair, 1
  br i1 %won, label %set, label %out
set:
  store atomic i32 %threads, ptr %threadsp seq_cst, align 4
  store atomic i32 0, ptr %busyp seq_cst, align 4
  br label %out
out:
  %done = zext i1 %won to i32
  ret i32 %done
}}

; Wait until the chunks that others claimed are done: spin, then sleep.
define internal void @await(ptr %pool, i32 %chunks) {{
entry:
  %donep = at Pool.done %pool
  %waitingp = at Pool.waiting %pool
  %spins = get Pool.spins %pool
  br label %look
look:
  %spun = phi i32 [ 0, %entry ], [ %spun1, %spin ], [ %spins, %sleep ]
  %done = load atomic i32, ptr %donep seq_cst, align 4
  %all = icmp eq i32 %done, %chunks
  br i1 %all, label %out, label %busy
busy:
  %again = icmp slt i32 %spun, %spins
  br i1 %again, label %spin, label %announce
spin:
  %spun1 = add i32 %spun, 1
  call void @pause()
  br label %look
announce:
  store atomic i32 1, ptr %waitingp seq_cst, align 4
  %latest = load atomic i32, ptr %donep seq_cst, align 4
  %changed = icmp ne i32 %latest, %done
  br i1 %changed, label %sleep, label %doze
doze:
  %slept = call i1 @sleep_on(ptr %donep, i32 %done)
  br label %sleep
sleep:
  call void @pause()
  br label %look
out:
  ret void
}}

; Keep what a program took, when time has passed since `begin`.
define internal void @note_pace(ptr %pace, i64 %begin, i64 %programs) {{
entry:
  %end = call i64 @now()
  %elapsed = sub i64 %end, %begin
  %known = icmp sgt i64 %elapsed, 0
  %some = icmp sgt i64 %programs, 0
  %both = and i1 %known, %some
  br i1 %both, label %keep, label %out
keep:
  %time = sitofp i64 %elapsed to double
  %count = sitofp i64 %programs to double
  %each = fdiv double %time, %count
  store atomic double %each, ptr %pace monotonic, align 8
  br label %out
out:
  ret void
}}

; What one thread would take for all programs; 0 when that is not known.
define internal double @expected_ns(i64 %programs, ptr %pace) {{
  %each = load atomic double, ptr %pace monotonic, align 8
  %count = sitofp i64 %programs to double
  %expected = fmul double %each, %count
  ret double %expected
}}

; True unless the launch will be over before the workers could help.
define internal i1 @worth_sharing(ptr %pool, i64 %programs, ptr %pace) {{
  %expected = call double @expected_ns(i64 %programs, ptr %pace)
  %sleepers = call i32 @sleepers(ptr %pool)
  %asleep = icmp ne i32 %sleepers, 0
  %least = select i1 %asleep, double {ASLEEP_NS}.0, double {AWAKE_NS}.0
  %long = fcmp oge double %expected, %least
  %unknown = fcmp oeq double %expected, 0.0
  %worth = or i1 %long, %unknown
  ret i1 %worth
}}

; True when this call now owns the workers: there is work for two, and nobody else owns them.
define internal i1 @own(ptr %pool, i64 %programs, i32 %threads, ptr %pace) {{
entry:
  %busyp = at Pool.busy %pool
  %many = icmp sgt i64 %programs, 1
  %team = icmp sgt i32 %threads, 1
  %both = and i1 %many, %team
  br i1 %both, label %consider, label %no
consider:
  %worth = call i1 @worth_sharing(ptr %pool, i64 %programs, ptr %pace)
  br i1 %worth, label %ask, label %no
ask:
  %pair = cmpxchg ptr %busyp, i32 0, i32 1 seq_cst seq_cst
  %won = extractvalue {{ i32, i1 }} %pair, 1
  br i1 %won, label %check, label %no
check:
  %started = get Pool.started %pool
  %enough = icmp sge i32 %started, %threads
  br i1 %enough, label %yes, label %start
start:
  %function = get Pool.start %pool
  %r = call ptr @PyObject_CallNoArgs(ptr %function)
  call void @forget(ptr %r)
  br label %yes
yes:
  ret i1 true
no:
  ret i1 false
}}

; One thread does it all.  A single program is never shared, so its pace is of no interest.
define internal void @run_alone(ptr %kernel, ptr %args, i64 %programs, ptr %scratch, ptr %store,
                                ptr %pace) {{
entry:
  %thread = call ptr @PyEval_SaveThread()
  %single = icmp sle i64 %programs, 1
  br i1 %single, label %plain, label %timed
plain:
  call void %kernel(ptr %args, i64 0, i64 %programs, ptr %scratch, ptr %store)
  br label %out
timed:
  %begin = call i64 @now()
  call void %kernel(ptr %args, i64 0, i64 %programs, ptr %scratch, ptr %store)
  call void @note_pace(ptr %pace, i64 %begin, i64 %programs)
  br label %out
out:
  call void @PyEval_RestoreThread(ptr %thread)
  ret void
}}

; The caller and the workers share it.  1 when a worker found no memory, else 0.
define internal i32 @run_together(ptr %pool, ptr %kernel, ptr %args, i64 %programs, i64 %bytes,
                                  i64 %store_bytes, i32 %threads, ptr %arena, ptr %pace) {{
entry:
  %busyp = at Pool.busy %pool
  %no_memoryp = at Pool.no_memory %pool
  %chunks = call i32 @publish(ptr %pool, ptr %kernel, ptr %args, i64 %programs, i64 %bytes,
                              i64 %store_bytes, i32 %threads, ptr %pace)
  %sleepers = call i32 @sleepers(ptr %pool)
  %asleep = icmp ne i32 %sleepers, 0
  br i1 %asleep, label %parked, label %leave
parked:
  call void @wake_parked(ptr %pool)
  br label %leave
leave:
  %thread = call ptr @PyEval_SaveThread()
  br i1 %asleep, label %wake, label %share
wake:
  %most = sub i32 %chunks, 1
  call void @pool_wake(ptr %pool, i32 %most)
  br label %share
share:
  %begin = call i64 @now()
  %ran = call i64 @work(ptr %pool, i64 0, ptr %arena)
  %chunk = get Pool.chunk %pool
  %mine = mul i64 %ran, %chunk
  call void @note_pace(ptr %pace, i64 %begin, i64 %mine)
  call void @await(ptr %pool, i32 %chunks)
  %no_memory = load atomic i32, ptr %no_memoryp monotonic, align 4
  store atomic i32 0, ptr %busyp seq_cst, align 4
  call void @PyEval_RestoreThread(ptr %thread)
  ret i32 %no_memory
}}

; What the kernel's tile store may take: nothing for a single program, which would find no tile, nor
; where all threads' stores would pass the limit.
define internal i64 @store_share(ptr %pool, i64 %programs, i64 %wanted, i64 %threads) {{
  %limit = get Pool.store_limit %pool
  %share = udiv i64 %limit, %threads
  %many = icmp sgt i64 %programs, 1
  %fits = icmp ule i64 %wanted, %share
  %both = and i1 %many, %fits
  %bytes = select i1 %both, i64 %wanted, i64 0
  ret i64 %bytes
}}

define i32 @pool_run(ptr %pool, ptr %kernel, ptr %args, i64 %programs, i64 %bytes, i64 %wanted,
                     ptr %pace) {{
entry:
  %threads = get Pool.threads %pool
  %limit = get Pool.scratch_limit %pool
  %team = zext i32 %threads to i64
  %share = udiv i64 %limit, %team
  %over = icmp ugt i64 %bytes, %share
  br i1 %over, label %over_limit, label %take
take:
  %store_bytes = call i64 @store_share(ptr %pool, i64 %programs, i64 %wanted, i64 %team)
  %arena = call ptr @take_arena(ptr %pool)
  %no_arena = icmp eq ptr %arena, null
  br i1 %no_arena, label %no_memory, label %fill
fill:
  %scratch = call ptr @scratch_memory(ptr %arena, i64 %bytes)
  %no_scratch = icmp eq ptr %scratch, null
  br i1 %no_scratch, label %give_up, label %choose
choose:
  %together = call i1 @own(ptr %pool, i64 %programs, i32 %threads, ptr %pace)
  br i1 %together, label %shared, label %alone
shared:
  %status = call i32 @run_together(ptr %pool, ptr %kernel, ptr %args, i64 %programs, i64 %bytes,
                                   i64 %store_bytes, i32 %threads, ptr %arena, ptr %pace)
  br label %out
alone:
  %store = call ptr @tile_store(ptr %arena, i64 %store_bytes, i1 true)
  call void @run_alone(ptr %kernel, ptr %args, i64 %programs, ptr %scratch, ptr %store, ptr %pace)
  br label %out
out:
  %result = phi i32 [ %status, %shared ], [ {STATUS_OK}, %alone ]
  call void @give_arena(ptr %pool, ptr %arena)
  ret i32 %result
give_up:
  call void @give_arena(ptr %pool, ptr %arena)
  br label %no_memory
no_memory:
  ret i32 {STATUS_NO_MEMORY}
over_limit:
  ret i32 {STATUS_OVER_LIMIT}
}}
"""
