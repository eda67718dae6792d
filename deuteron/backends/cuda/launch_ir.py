"""The machine code that launches a kernel on a GPU, as LLVM IR text: a part of the launch path.

`run_on_cuda` is what the record of a GPU's kernel names as its `run` (`backends.cpu.launcher_ir`).
It packs the arguments, asks the arrays' library for its current stream, and calls the driver with
the GIL released.  It neither waits nor takes memory, so that a launch may be captured into a graph.
"""

from __future__ import annotations

from deuteron.backends.cpu.structs import Struct

# The driver's functions, which are not known when this code is linked.
CUDA_DRIVER = Struct(
    "CudaDriver",
    {"launch": "ptr", "get_context": "ptr", "push_context": "ptr", "pop_context": "ptr"},
)
# One kernel on one GPU.  With `own_stream` it goes to `stream`, whatever the arrays' library says.
CUDA_LAUNCH = Struct(
    "CudaLaunch",
    {
        "driver": "ptr", "context": "ptr", "function": "ptr", "stream": "ptr", "own_stream": "i32",
        "threads": "i32", "shared_bytes": "i32",
    },
)  # fmt: skip
CUDA_STRUCTS = (CUDA_DRIVER, CUDA_LAUNCH)

DLPACK_CUDA = 2

CUDA_LAUNCH_IR = f"""
; The stream to launch on.  False with an exception set when the arrays' library fails to tell.
define internal i1 @find_stream(ptr %launch, ptr %call, ptr %streamp) {{
entry:
  %own = get CudaLaunch.own_stream %launch
  %stream = get CudaLaunch.stream %launch
  store ptr %stream, ptr %streamp
  %ask = get Call.work_stream %call
  %is_own = icmp ne i32 %own, 0
  %nobody = icmp eq ptr %ask, null
  %known = or i1 %is_own, %nobody
  br i1 %known, label %done, label %inquire
inquire:
  %device = get Call.device %call
  %device32 = trunc i64 %device to i32
  %failed = call i32 %ask(i32 {DLPACK_CUDA}, i32 %device32, ptr %streamp)
  %ok = icmp eq i32 %failed, 0
  ret i1 %ok
done:
  ret i1 true
}}

; Where each argument is, as the driver wants to be told.
define internal void @point_at_slots(ptr %slots, i64 %count, ptr %pointers) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %one ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %one, label %out
one:
  %slot = getelementptr i64, ptr %slots, i64 %i
  %place = getelementptr ptr, ptr %pointers, i64 %i
  store ptr %slot, ptr %place
  %i1 = add i64 %i, 1
  br label %loop
out:
  ret void
}}

; Call the driver in the kernel's context; the caller's comes back.  The driver's status.
define internal i32 @launch_in_context(ptr %launch, ptr %sizes, ptr %stream, ptr %pointers) {{
entry:
  %currentp = alloca ptr
  store ptr null, ptr %currentp
  %driver = get CudaLaunch.driver %launch
  %context = get CudaLaunch.context %launch
  %get = get CudaDriver.get_context %driver
  %status0 = call i32 %get(ptr %currentp)
  %current = load ptr, ptr %currentp
  %same = icmp eq ptr %current, %context
  br i1 %same, label %launch_it, label %push
push:
  %push_context = get CudaDriver.push_context %driver
  %status1 = call i32 %push_context(ptr %context)
  %pushed = icmp eq i32 %status1, 0
  br i1 %pushed, label %launch_it, label %refused
launch_it:
  %function = get CudaLaunch.function %launch
  %threads = get CudaLaunch.threads %launch
  %shared_bytes = get CudaLaunch.shared_bytes %launch
  %size1p = getelementptr i64, ptr %sizes, i64 1
  %size2p = getelementptr i64, ptr %sizes, i64 2
  %size0 = load i64, ptr %sizes
  %size1 = load i64, ptr %size1p
  %size2 = load i64, ptr %size2p
  %x = trunc i64 %size0 to i32
  %y = trunc i64 %size1 to i32
  %z = trunc i64 %size2 to i32
  %do = get CudaDriver.launch %driver
  %status = call i32 %do(ptr %function, i32 %x, i32 %y, i32 %z, i32 %threads, i32 1, i32 1,
                         i32 %shared_bytes, ptr %stream, ptr %pointers, ptr null)
  br i1 %same, label %out, label %pop
pop:
  %pop_context = get CudaDriver.pop_context %driver
  %status2 = call i32 %pop_context(ptr %currentp)
  br label %out
out:
  ret i32 %status
refused:
  ret i32 %status1
}}

; A `run` of records.  The status and the grid go to `_after_launch` when the driver refuses.
define ptr @run_on_cuda(ptr %kernel, ptr %owner, ptr %record, ptr %values, ptr %sizes,
                        ptr %call) {{
entry:
  %launch = get Record.launch %record
  %result = get Record.result %record
  %count = get Record.slot_count %record
  call void @Py_IncRef(ptr %result)
  %programsp = getelementptr i64, ptr %sizes, i64 3
  %programs = load i64, ptr %programsp
  %nothing = icmp eq i64 %programs, 0
  br i1 %nothing, label %out, label %prepare
prepare:
  %slots = alloca i64, i64 %count
  %pointers = alloca ptr, i64 %count
  %streamp = alloca ptr
  call void @pack(ptr %record, ptr %values, ptr %slots)
  call void @point_at_slots(ptr %slots, i64 %count, ptr %pointers)
  %told = call i1 @find_stream(ptr %launch, ptr %call, ptr %streamp)
  br i1 %told, label %go, label %failed
go:
  %stream = load ptr, ptr %streamp
  %thread = call ptr @PyEval_SaveThread()
  %status = call i32 @launch_in_context(ptr %launch, ptr %sizes, ptr %stream, ptr %pointers)
  call void @PyEval_RestoreThread(ptr %thread)
  %fine = icmp eq i32 %status, 0
  br i1 %fine, label %out, label %complain
complain:
  %status64 = zext i32 %status to i64
  %name = get Kernel.after_name %kernel
  call void @complain(ptr %name, ptr %owner, ptr %result, i64 %status64, ptr %sizes, i64 24)
  br label %failed
failed:
  call void @Py_DecRef(ptr %result)
  ret ptr null
out:
  ret ptr %result
}}
"""
