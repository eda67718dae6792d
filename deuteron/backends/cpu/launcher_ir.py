"""The machine code behind `kernel[grid](...)`, as LLVM IR text: a CPython built-in function.

`launch` binds the arguments to the kernel's parameters, writes the call's key (`describe_ir.py`),
and looks it up in the kernel's dictionary.  On a hit it has the record's `run` run the kernel: the
pool, or a GPU (`backends.cuda.launch_ir`).  On a miss, or for anything it does not know, it calls
the kernel's `_launch_slowly`, which is right for everything and enters the key.
"""

from __future__ import annotations

from deuteron.backends.cpu.describe_ir import END, OPTION
from deuteron.backends.cpu.structs import Struct

# How a slot of the args block is made from the parameter's value.
SLOT_RAW = 0
SLOT_DOUBLE_TO_FLOAT = 1

PARAM = Struct("Param", {"name": "ptr", "default": "ptr", "flags": "i64"})
# A jit function: `records` maps keys to records.  The names are of the owner's methods.
KERNEL = Struct(
    "Kernel",
    {
        "param_count": "i64", "records": "ptr", "pool": "ptr", "types": "ptr",
        "globals_changed": "ptr", "slow_name": "ptr", "after_name": "ptr", "params": "[0 x %Param]",
    },
    (PARAM,),
)  # fmt: skip
# What to run: `run` is machine code that runs what `launch` describes.  Each of `slots` is a
# parameter's number, and in the upper half how to convert.
RECORD = Struct(
    "Record",
    {"run": "ptr", "launch": "ptr", "result": "ptr", "slot_count": "i64", "slots": "[0 x i64]"},
)
# A kernel of this machine: what `run_on_pool` needs to know.
POOL_LAUNCH = Struct(
    "PoolLaunch", {"code": "ptr", "scratch_bytes": "i64", "store_bytes": "i64", "pace": "ptr"}
)
LAUNCHER_STRUCTS = (PARAM, KERNEL, RECORD, POOL_LAUNCH)


_BIND = f"""
; The parameter after the positional ones that has this name (by identity: names are interned), or
; its count when it is none: then it is a launch option.
define internal i64 @parameter(ptr %kernel, i64 %from, i64 %count, ptr %name) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ %from, %entry ], [ %i1, %next ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %compare, label %out
compare:
  %param = at Kernel.params[%i] %kernel
  %its = get Param.name %param
  %same = icmp eq ptr %its, %name
  br i1 %same, label %out, label %next
next:
  %i1 = add i64 %i, 1
  br label %loop
out:
  ret i64 %i
}}

; Arguments to parameters: positional ones and defaults into `bound`, null where there is neither.
define internal void @bind_positional(ptr %kernel, i64 %count, ptr %args, i64 %nargs, ptr %bound) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %store ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %choose, label %out
choose:
  %given = icmp ult i64 %i, %nargs
  br i1 %given, label %argument, label %default
argument:
  %argp = getelementptr ptr, ptr %args, i64 %i
  br label %store
default:
  %param = at Kernel.params[%i] %kernel
  %defaultp = at Param.default %param
  br label %store
store:
  %from = phi ptr [ %argp, %argument ], [ %defaultp, %default ]
  %object = load ptr, ptr %from
  %to = getelementptr ptr, ptr %bound, i64 %i
  store ptr %object, ptr %to
  %i1 = add i64 %i, 1
  br label %loop
out:
  ret void
}}

; Keyword arguments: to parameters by name; the rest are launch options and go into the key.
define internal i1 @bind_keywords(ptr %call, ptr %kernel, i64 %count, ptr %args, i64 %nargs,
                                  ptr %kwnames, ptr %bound) {{
entry:
  %none = icmp eq ptr %kwnames, null
  br i1 %none, label %done, label %head
head:
  %total = call i64 @PyTuple_Size(ptr %kwnames)
  br label %loop
loop:
  %k = phi i64 [ 0, %head ], [ %k1, %next ]
  %more = icmp ult i64 %k, %total
  br i1 %more, label %one, label %done
one:
  %name = call ptr @PyTuple_GetItem(ptr %kwnames, i64 %k)
  %place = add i64 %nargs, %k
  %objectp = getelementptr ptr, ptr %args, i64 %place
  %object = load ptr, ptr %objectp
  %index = call i64 @parameter(ptr %kernel, i64 %nargs, i64 %count, ptr %name)
  %is_parameter = icmp ult i64 %index, %count
  br i1 %is_parameter, label %bind, label %option
bind:
  %to = getelementptr ptr, ptr %bound, i64 %index
  store ptr %object, ptr %to
  br label %next
option:
  %address = ptrtoint ptr %name to i64
  call void @push(ptr %call, i64 {OPTION})
  call void @push(ptr %call, i64 %address)
  %ok = call i1 @push_constant(ptr %call, ptr %object)
  br i1 %ok, label %next, label %unknown
next:
  %k1 = add i64 %k, 1
  br label %loop
done:
  ret i1 true
unknown:
  ret i1 false
}}

; Describe every bound argument; false when one is missing or unknown.
define internal i1 @describe_all(ptr %call, ptr %kernel, i64 %count, ptr %bound, ptr %values) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %one, label %done
one:
  %objectp = getelementptr ptr, ptr %bound, i64 %i
  %object = load ptr, ptr %objectp
  %missing = icmp eq ptr %object, null
  br i1 %missing, label %unknown, label %describe
describe:
  %param = at Kernel.params[%i] %kernel
  %flags = get Param.flags %param
  %value = getelementptr i64, ptr %values, i64 %i
  %ok = call i1 @describe(ptr %call, ptr %object, i64 %flags, ptr %value)
  br i1 %ok, label %next, label %unknown
next:
  %i1 = add i64 %i, 1
  br label %loop
done:
  %aliased = get Call.aliased %call
  %bit = shl i64 %aliased, 8
  %word = or i64 %bit, {END}
  call void @push(ptr %call, i64 %word)
  ret i1 true
unknown:
  ret i1 false
}}
"""

_GRID = """
; The grid, asked of a callable with the bound arguments by name.  A new reference, or null with an
; exception set.
define internal ptr @ask_grid(ptr %kernel, i64 %count, ptr %grid, ptr %bound) {
entry:
  %callable = call i32 @PyCallable_Check(ptr %grid)
  %plain = icmp eq i32 %callable, 0
  br i1 %plain, label %as_is, label %ask
as_is:
  call void @Py_IncRef(ptr %grid)
  ret ptr %grid
ask:
  %meta = call ptr @PyDict_New()
  %no_meta = icmp eq ptr %meta, null
  br i1 %no_meta, label %failed, label %loop
loop:
  %i = phi i64 [ 0, %ask ], [ %i1, %set ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %set, label %call
set:
  %param = at Kernel.params[%i] %kernel
  %name = get Param.name %param
  %objectp = getelementptr ptr, ptr %bound, i64 %i
  %object = load ptr, ptr %objectp
  %error = call i32 @PyDict_SetItem(ptr %meta, ptr %name, ptr %object)
  %i1 = add i64 %i, 1
  %ok = icmp eq i32 %error, 0
  br i1 %ok, label %loop, label %drop
call:
  %answer = call ptr @PyObject_CallOneArg(ptr %grid, ptr %meta)
  call void @Py_DecRef(ptr %meta)
  ret ptr %answer
drop:
  call void @Py_DecRef(ptr %meta)
  br label %failed
failed:
  ret ptr null
}

; Sizes of a tuple of 1 to 3 ints of 0 to 2**31 - 1 into three words, and their product below 2**62
; into the fourth.  False for any other grid.
define internal i1 @read_grid(ptr %grid, ptr %sizes) {
entry:
  %is_tuple = call i1 @is_a(ptr %grid, ptr @PyTuple_Type)
  br i1 %is_tuple, label %measure, label %unknown
measure:
  %rank = call i64 @PyTuple_Size(ptr %grid)
  %rank0 = sub i64 %rank, 1
  %fits = icmp ult i64 %rank0, 3
  %size1 = getelementptr i64, ptr %sizes, i64 1
  %size2 = getelementptr i64, ptr %sizes, i64 2
  %productp = getelementptr i64, ptr %sizes, i64 3
  store i64 1, ptr %size1
  store i64 1, ptr %size2
  br i1 %fits, label %loop, label %unknown
loop:
  %i = phi i64 [ 0, %measure ], [ %i1, %next ]
  %product = phi i64 [ 1, %measure ], [ %product1, %next ]
  %more = icmp ult i64 %i, %rank
  br i1 %more, label %one, label %done
one:
  %object = call ptr @PyTuple_GetItem(ptr %grid, i64 %i)
  %is_int = call i1 @is_a(ptr %object, ptr @PyLong_Type)
  br i1 %is_int, label %read, label %unknown
read:
  %sizep = getelementptr i64, ptr %sizes, i64 %i
  %short = call i1 @int_value(ptr %object, ptr %sizep)
  br i1 %short, label %check, label %unknown
check:
  %size = load i64, ptr %sizep
  %in_range = icmp ult i64 %size, 2147483648
  %pair = call { i64, i1 } @llvm.umul.with.overflow.i64(i64 %product, i64 %size)
  %product1 = extractvalue { i64, i1 } %pair, 0
  %overflow = extractvalue { i64, i1 } %pair, 1
  %small = icmp ult i64 %product1, 4611686018427387904
  %g0 = xor i1 %overflow, true
  %g1 = and i1 %g0, %small
  %good = and i1 %g1, %in_range
  br i1 %good, label %next, label %unknown
next:
  %i1 = add i64 %i, 1
  br label %loop
done:
  store i64 %product, ptr %productp
  ret i1 true
unknown:
  ret i1 false
}
"""

_LAUNCH = f"""
; `owner._launch_slowly(grid, args, kwargs, key)`, whose result is the launch's.
define internal ptr @launch_slowly(ptr %kernel, ptr %owner, ptr %grid, ptr %args, i64 %nargs,
                                   ptr %kwnames, ptr %key) {{
entry:
  %vector = alloca [5 x ptr]
  %vector1 = getelementptr ptr, ptr %vector, i64 1
  %vector2 = getelementptr ptr, ptr %vector, i64 2
  %vector3 = getelementptr ptr, ptr %vector, i64 3
  %vector4 = getelementptr ptr, ptr %vector, i64 4
  %name = get Kernel.slow_name %kernel
  %tuple = call ptr @PyTuple_New(i64 %nargs)
  %dict = call ptr @PyDict_New()
  br label %positional
positional:
  %i = phi i64 [ 0, %entry ], [ %i1, %item ]
  %more = icmp ult i64 %i, %nargs
  br i1 %more, label %item, label %keywords
item:
  %argp = getelementptr ptr, ptr %args, i64 %i
  %arg = load ptr, ptr %argp
  call void @Py_IncRef(ptr %arg)
  %e0 = call i32 @PyTuple_SetItem(ptr %tuple, i64 %i, ptr %arg)
  %i1 = add i64 %i, 1
  br label %positional
keywords:
  %none = icmp eq ptr %kwnames, null
  br i1 %none, label %call, label %head
head:
  %total = call i64 @PyTuple_Size(ptr %kwnames)
  br label %keyword
keyword:
  %k = phi i64 [ 0, %head ], [ %k1, %entry_of ]
  %more_keywords = icmp ult i64 %k, %total
  br i1 %more_keywords, label %entry_of, label %call
entry_of:
  %keyword_name = call ptr @PyTuple_GetItem(ptr %kwnames, i64 %k)
  %place = add i64 %nargs, %k
  %valuep = getelementptr ptr, ptr %args, i64 %place
  %value = load ptr, ptr %valuep
  %e1 = call i32 @PyDict_SetItem(ptr %dict, ptr %keyword_name, ptr %value)
  %k1 = add i64 %k, 1
  br label %keyword
call:
  store ptr %owner, ptr %vector
  store ptr %grid, ptr %vector1
  store ptr %tuple, ptr %vector2
  store ptr %dict, ptr %vector3
  store ptr %key, ptr %vector4
  %answer = call ptr @PyObject_VectorcallMethod(ptr %name, ptr %vector, i64 5, ptr null)
  call void @Py_DecRef(ptr %tuple)
  call void @Py_DecRef(ptr %dict)
  ret ptr %answer
}}

; Fill the slots of the run-time arguments.
define internal void @pack(ptr %record, ptr %values, ptr %slots) {{
entry:
  %count = get Record.slot_count %record
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %one, label %out
one:
  %codep = at Record.slots[%i] %record
  %code = load i64, ptr %codep
  %index = and i64 %code, 4294967295
  %how = lshr i64 %code, 32
  %valuep = getelementptr i64, ptr %values, i64 %index
  %value = load i64, ptr %valuep
  %slot = getelementptr i64, ptr %slots, i64 %i
  store i64 %value, ptr %slot
  %narrow = icmp eq i64 %how, {SLOT_DOUBLE_TO_FLOAT}
  br i1 %narrow, label %convert, label %next
convert:
  %real = bitcast i64 %value to double
  %real32 = fptrunc double %real to float
  %bits = bitcast float %real32 to i32
  %bits64 = zext i32 %bits to i64
  store i64 %bits64, ptr %slot
  br label %next
next:
  %i1 = add i64 %i, 1
  br label %loop
out:
  ret void
}}

; A `run` of records: a new reference to the result, or null with an exception set.  Fills the args
; block, and runs the pool.
define ptr @run_on_pool(ptr %kernel, ptr %owner, ptr %record, ptr %values, ptr %sizes,
                        ptr %call) {{
entry:
  %launch = get Record.launch %record
  %code = get PoolLaunch.code %launch
  %scratch_bytes = get PoolLaunch.scratch_bytes %launch
  %store_bytes = get PoolLaunch.store_bytes %launch
  %pace = get PoolLaunch.pace %launch
  %result = get Record.result %record
  %slots = get Record.slot_count %record
  call void @Py_IncRef(ptr %result)
  %programsp = getelementptr i64, ptr %sizes, i64 3
  %programs = load i64, ptr %programsp
  %nothing = icmp eq i64 %programs, 0
  br i1 %nothing, label %out, label %prepare
prepare:
  %length = add i64 %slots, 4
  %block = alloca i64, i64 %length
  %control = alloca [8 x i64]
  store [8 x i64] zeroinitializer, ptr %control
  %grid = load [3 x i64], ptr %sizes
  store [3 x i64] %grid, ptr %block
  %controlp = getelementptr i64, ptr %block, i64 3
  store ptr %control, ptr %controlp
  %slot4 = getelementptr i64, ptr %block, i64 4
  call void @pack(ptr %record, ptr %values, ptr %slot4)
  %pool = get Kernel.pool %kernel
  %status = call i32 @pool_run(ptr %pool, ptr %code, ptr %block, i64 %programs,
                               i64 %scratch_bytes, i64 %store_bytes, ptr %pace)
  %failed = load i64, ptr %control
  %status64 = zext i32 %status to i64
  %trouble = or i64 %failed, %status64
  %fine = icmp eq i64 %trouble, 0
  br i1 %fine, label %out, label %complain
complain:
  %name = get Kernel.after_name %kernel
  call void @complain(ptr %name, ptr %owner, ptr %result, i64 %status64, ptr %control, i64 64)
  call void @Py_DecRef(ptr %result)
  ret ptr null
out:
  ret ptr %result
}}

; `owner._after_launch(result, status, details)`, which raises.
define internal void @complain(ptr %name, ptr %owner, ptr %result, i64 %status, ptr %details,
                               i64 %size) {{
  %vector = alloca [4 x ptr]
  %vector1 = getelementptr ptr, ptr %vector, i64 1
  %vector2 = getelementptr ptr, ptr %vector, i64 2
  %vector3 = getelementptr ptr, ptr %vector, i64 3
  %number = call ptr @PyLong_FromLongLong(i64 %status)
  %bytes = call ptr @PyBytes_FromStringAndSize(ptr %details, i64 %size)
  store ptr %owner, ptr %vector
  store ptr %result, ptr %vector1
  store ptr %number, ptr %vector2
  store ptr %bytes, ptr %vector3
  %answer = call ptr @PyObject_VectorcallMethod(ptr %name, ptr %vector, i64 4, ptr null)
  call void @Py_DecRef(ptr %number)
  call void @Py_DecRef(ptr %bytes)
  ret void
}}

; Whether a global that the kernel reads has changed.  0: no; 1: yes; 2: an exception.
define internal i32 @globals_changed(ptr %kernel, ptr %owner) {{
entry:
  %check = get Kernel.globals_changed %kernel
  %answer = call ptr @PyObject_CallOneArg(ptr %check, ptr %owner)
  %error = icmp eq ptr %answer, null
  br i1 %error, label %raise, label %look
look:
  call void @Py_DecRef(ptr %answer)
  %unchanged = icmp eq ptr %answer, @_Py_NoneStruct
  %code = select i1 %unchanged, i32 0, i32 1
  ret i32 %code
raise:
  ret i32 2
}}

; The key's words as a bytes object.
define internal ptr @key_object(ptr %call, ptr %words) {{
  %end = get Call.key_end %call
  %end_address = ptrtoint ptr %end to i64
  %begin_address = ptrtoint ptr %words to i64
  %bytes = sub i64 %end_address, %begin_address
  %key = call ptr @PyBytes_FromStringAndSize(ptr %words, i64 %bytes)
  ret ptr %key
}}

; The record for a key over a grid of known sizes, or null.  A borrowed reference.
define internal ptr @find_record(ptr %kernel, ptr %grid, ptr %sizes, ptr %key) {{
entry:
  %readable = call i1 @read_grid(ptr %grid, ptr %sizes)
  br i1 %readable, label %look_up, label %none
look_up:
  %records = get Kernel.records %kernel
  %object = call ptr @PyDict_GetItemWithError(ptr %records, ptr %key)
  %absent = icmp eq ptr %object, null
  br i1 %absent, label %none, label %found
found:
  %record = call ptr @PyBytes_AsString(ptr %object)
  ret ptr %record
none:
  ret ptr null
}}

; The number of keyword arguments.
define internal i64 @keyword_count(ptr %kwnames) {{
entry:
  %none = icmp eq ptr %kwnames, null
  br i1 %none, label %zero, label %count
count:
  %given = call i64 @PyTuple_Size(ptr %kwnames)
  ret i64 %given
zero:
  ret i64 0
}}

; METH_FASTCALL | METH_KEYWORDS.  `self` is the tuple (%Kernel as bytes, grid, JITFunction).
define ptr @launch(ptr %self, ptr %args, i64 %nargs, ptr %kwnames) {{
entry:
  %state = call ptr @PyTuple_GetItem(ptr %self, i64 0)
  %grid = call ptr @PyTuple_GetItem(ptr %self, i64 1)
  %owner = call ptr @PyTuple_GetItem(ptr %self, i64 2)
  %kernel = call ptr @PyBytes_AsString(ptr %state)
  %count = get Kernel.param_count %kernel
  %too_many = icmp ugt i64 %nargs, %count
  br i1 %too_many, label %unknown, label %prepare
prepare:
  ; At most two words a parameter, four a keyword argument and one at the end.
  %keywords = call i64 @keyword_count(ptr %kwnames)
  %w0 = shl i64 %count, 1
  %w1 = shl i64 %keywords, 2
  %w2 = add i64 %w0, %w1
  %w3 = add i64 %w2, 1
  %words = alloca i64, i64 %w3
  %bound = alloca ptr, i64 %count
  %values = alloca i64, i64 %count
  %extents = alloca %Extent, i64 %count
  %sizes = alloca [4 x i64]
  %call = alloca %Call
  %types = get Kernel.types %kernel
  set Call.key_end %call, %words
  set Call.extents %call, %extents
  set Call.extent_count %call, 0
  set Call.aliased %call, 0
  set Call.types %call, %types
  set Call.work_stream %call, null
  set Call.device %call, 0
  call void @bind_positional(ptr %kernel, i64 %count, ptr %args, i64 %nargs, ptr %bound)
  %bound_ok = call i1 @bind_keywords(ptr %call, ptr %kernel, i64 %count, ptr %args, i64 %nargs,
                                     ptr %kwnames, ptr %bound)
  br i1 %bound_ok, label %describe, label %unknown
describe:
  %known = call i1 @describe_all(ptr %call, ptr %kernel, i64 %count, ptr %bound, ptr %values)
  br i1 %known, label %check, label %unknown
check:
  %changed = call i32 @globals_changed(ptr %kernel, ptr %owner)
  switch i32 %changed, label %failed [ i32 0, label %measure
                                       i32 1, label %unknown ]
measure:
  %measured = call ptr @ask_grid(ptr %kernel, i64 %count, ptr %grid, ptr %bound)
  %no_grid = icmp eq ptr %measured, null
  br i1 %no_grid, label %failed, label %find
find:
  %key = call ptr @key_object(ptr %call, ptr %words)
  %no_key = icmp eq ptr %key, null
  br i1 %no_key, label %drop_grid, label %look_up
look_up:
  %record = call ptr @find_record(ptr %kernel, ptr %measured, ptr %sizes, ptr %key)
  %miss = icmp eq ptr %record, null
  br i1 %miss, label %slowly, label %hit
slowly:
  %slow_answer = call ptr @launch_slowly(ptr %kernel, ptr %owner, ptr %measured, ptr %args,
                                         i64 %nargs, ptr %kwnames, ptr %key)
  br label %clean
hit:
  %run = get Record.run %record
  %fast_answer = call ptr %run(ptr %kernel, ptr %owner, ptr %record, ptr %values, ptr %sizes,
                               ptr %call)
  br label %clean
clean:
  %result = phi ptr [ %slow_answer, %slowly ], [ %fast_answer, %hit ]
  call void @Py_DecRef(ptr %key)
  call void @Py_DecRef(ptr %measured)
  ret ptr %result
unknown:
  %keyless = call ptr @launch_slowly(ptr %kernel, ptr %owner, ptr %grid, ptr %args, i64 %nargs,
                                     ptr %kwnames, ptr @_Py_NoneStruct)
  ret ptr %keyless
drop_grid:
  call void @Py_DecRef(ptr %measured)
  ret ptr null
failed:
  ret ptr null
}}

; METH_FASTCALL.  (%Kernel as bytes, grid, JITFunction) to the built-in function that launches.
define ptr @bind_grid(ptr %self, ptr %args, i64 %nargs) {{
entry:
  %gridp = getelementptr ptr, ptr %args, i64 1
  %ownerp = getelementptr ptr, ptr %args, i64 2
  %kernel = load ptr, ptr %args
  %grid = load ptr, ptr %gridp
  %owner = load ptr, ptr %ownerp
  %tuple = call ptr (i64, ...) @PyTuple_Pack(i64 3, ptr %kernel, ptr %grid, ptr %owner)
  %none = icmp eq ptr %tuple, null
  br i1 %none, label %failed, label %make
make:
  %launcher = call ptr @PyCFunction_NewEx(ptr @deuteron_launch_method, ptr %tuple, ptr null)
  call void @Py_DecRef(ptr %tuple)
  ret ptr %launcher
failed:
  ret ptr null
}}
"""

LAUNCHER_IR = "\n".join([_BIND, _GRID, _LAUNCH])
