"""The launcher's first half, as LLVM IR text: what compiled code may know of each argument.

Writes the *key* of a call: 64-bit words that say of each argument all that compiled code may depend
on.  The key must be at least as fine as `runtime.specialize`, and a value that this code does not
know makes it give up.  Words of the key, by their low byte:

    INT      bit 8: is 1; bit 9: divisible by 16; bit 10: needs 64 bits
    BOOL, FLOAT, NONE
    NUMPY    bit 8: read-only; bit 9: address divisible by 16; bits 10…15: one more than the number
             of the first array with this address; bits 32…: NumPy's type number
    DLPACK   bits 9…15: as above; bits 16…: DLPack's device; bits 32…: DLPack's code, bits and lanes
    C_INT, C_FLOAT, C_OBJECT    of a constexpr; the next word is its value or address
    OPTION   of a launch option; the next word is its name's address, then its value as a constexpr
    END      bit 8: two arrays overlap without beginning at one address

Whether arrays with one address are one argument or overlap is told by their own words.

It relies on the place of the type in a Python object, and on the public layouts of NumPy's array
and descriptor structs and of DLPack's `DLTensor`.
"""

from __future__ import annotations

from deuteron.backends.cpu.structs import Struct

MAX_TYPES = 16  # array types that can be registered

# Flags of a parameter.
CONSTEXPR = 1
NO_ONE = 2  # the value 1 is nothing special
NO_DIVISIBILITY = 4

_INT, _BOOL, _FLOAT, _NONE, _NUMPY, _DLPACK = 1, 2, 3, 4, 5, 6
_C_INT, _C_FLOAT, _C_OBJECT, OPTION, END = 8, 9, 10, 11, 12

_NUMPY_WRITEABLE = 0x400
_NUMPY_SWAPPED = ord(">")
_DLPACK_CPU, _DLPACK_CUDA = 1, 2
_MAX_DEVICES = 256  # by number, in a key word
_MAX_TWINS = 63  # one more than the last number of an array that a key word can name

# The array types read: NumPy's, and those registered with their functions: one that tells where an
# array lies, one that tells the current stream of a device.
TYPE_ROW = Struct("TypeRow", {"type": "ptr", "exchange": "ptr", "work_stream": "ptr"})
TYPES = Struct(
    "Types", {"ndarray": "ptr", "count": "i64", "rows": f"[{MAX_TYPES} x %TypeRow]"}, (TYPE_ROW,)
)
# Where the next key word goes, and the arrays met so far.  Of one on a GPU `device` is the number,
# and `work_stream` the function of its library.
CALL = Struct(
    "Call",
    {
        "key_end": "ptr", "extents": "ptr", "extent_count": "i64", "aliased": "i64", "types": "ptr",
        "work_stream": "ptr", "device": "i64",
    },
)  # fmt: skip
# The address of an array's element 0; its elements lie in the bytes [first, last).
_EXTENT = Struct("Extent", {"address": "i64", "first": "i64", "last": "i64"})
_OBJECT = Struct("Object", {"references": "i64", "type": "ptr"})
ARRAY = Struct(
    "Array",
    {
        "references": "i64", "type": "ptr", "data": "i64", "ndim": "i32", "shape": "ptr",
        "strides": "ptr", "base": "ptr", "descriptor": "ptr", "flags": "i32",
    },
)  # fmt: skip
_TENSOR = Struct(
    "Tensor",
    {
        "data": "i64", "device_type": "i32", "device": "i32", "ndim": "i32", "dtype": "i32",
        "shape": "ptr", "strides": "ptr", "byte_offset": "i64",
    },
)  # fmt: skip


def descriptor(numpy_major: int) -> Struct:
    """NumPy's PyArray_Descr up to the size of an item, which NumPy 2 moved and widened.

    Sizes fit 32 bits, and the low half is what is read.
    """
    size = {"size": "i32"} if numpy_major < 2 else {"flags": "i64", "size": "i32"}
    return Struct(
        "Descriptor",
        {
            "references": "i64", "type": "ptr", "scalar": "ptr", "kind": "i8", "char": "i8",
            "order": "i8", "reserved": "i8", "number": "i32", **size,
        },
    )  # fmt: skip


def describe_structs(numpy_major: int) -> tuple[Struct, ...]:
    """The structs that DESCRIBE_IR names."""
    numpy = (ARRAY, descriptor(numpy_major))
    return (TYPE_ROW, TYPES, CALL, _EXTENT, _OBJECT, _TENSOR, *numpy)


DESCRIBE_IR = f"""
define internal ptr @type_of(ptr %object) alwaysinline {{
  %type = get Object.type %object
  ret ptr %type
}}

define internal i1 @is_a(ptr %object, ptr %type) alwaysinline {{
  %its = call ptr @type_of(ptr %object)
  %same = icmp eq ptr %its, %type
  ret i1 %same
}}

; The value of an int object; false when it does not fit 64 bits.
define internal i1 @int_value(ptr %object, ptr %value) {{
  %overflowp = alloca i32
  %number = call i64 @PyLong_AsLongLongAndOverflow(ptr %object, ptr %overflowp)
  store i64 %number, ptr %value
  %overflow = load i32, ptr %overflowp
  %fits = icmp eq i32 %overflow, 0
  ret i1 %fits
}}

define internal void @push(ptr %call, i64 %word) alwaysinline {{
  %end = get Call.key_end %call
  store i64 %word, ptr %end
  %end1 = getelementptr i64, ptr %end, i64 1
  set Call.key_end %call, %end1
  ret void
}}

; Two words for a constexpr.  Objects count by identity; the record keeps them alive.
define internal i1 @push_constant(ptr %call, ptr %object) {{
entry:
  %value = alloca i64
  %is_int = call i1 @is_a(ptr %object, ptr @PyLong_Type)
  br i1 %is_int, label %int, label %not_int
int:
  %fits = call i1 @int_value(ptr %object, ptr %value)
  %number = load i64, ptr %value
  call void @push(ptr %call, i64 {_C_INT})
  call void @push(ptr %call, i64 %number)
  ret i1 %fits
not_int:
  %is_float = call i1 @is_a(ptr %object, ptr @PyFloat_Type)
  br i1 %is_float, label %float, label %other
float:
  %real = call double @PyFloat_AsDouble(ptr %object)
  %bits = bitcast double %real to i64
  call void @push(ptr %call, i64 {_C_FLOAT})
  call void @push(ptr %call, i64 %bits)
  ret i1 true
other:
  %address = ptrtoint ptr %object to i64
  call void @push(ptr %call, i64 {_C_OBJECT})
  call void @push(ptr %call, i64 %address)
  ret i1 true
}}

; Note the bytes [first, last) of an array argument, and whether they overlap another's.  One more
; than the number of the first array that overlaps it and begins at its address, or 0.
define internal i64 @note_extent(ptr %call, i64 %address, i64 %first, i64 %last) {{
entry:
  %extents = get Call.extents %call
  %count = get Call.extent_count %call
  %own = getelementptr %Extent, ptr %extents, i64 %count
  set Extent.address %own, %address
  set Extent.first %own, %first
  set Extent.last %own, %last
  %count1 = add i64 %count, 1
  set Call.extent_count %call, %count1
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %compare ]
  %twin = phi i64 [ 0, %entry ], [ %twin1, %compare ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %compare, label %out
compare:
  %other = getelementptr %Extent, ptr %extents, i64 %i
  %its_address = get Extent.address %other
  %its_first = get Extent.first %other
  %its_last = get Extent.last %other
  %apart = icmp ne i64 %its_address, %address
  %before = icmp ult i64 %its_first, %last
  %after = icmp ult i64 %first, %its_last
  %overlap = and i1 %before, %after
  %bad = and i1 %overlap, %apart
  %bit = zext i1 %bad to i64
  %so_far = get Call.aliased %call
  %now = or i64 %so_far, %bit
  set Call.aliased %call, %now
  %i1 = add i64 %i, 1
  %together = xor i1 %apart, true
  %equal = and i1 %together, %overlap
  %none = icmp eq i64 %twin, 0
  %found = and i1 %equal, %none
  %twin1 = select i1 %found, i64 %i1, i64 %twin
  br label %loop
out:
  ret i64 %twin
}}

; 512, the bit of divisibility by 16, or 0 when it is not so or not to be known.
define internal i64 @divisible(i64 %number, i64 %flags) alwaysinline {{
  %low = and i64 %number, 15
  %divides = icmp eq i64 %low, 0
  %hidden = and i64 %flags, {NO_DIVISIBILITY}
  %open = icmp eq i64 %hidden, 0
  %both = and i1 %divides, %open
  %bit = select i1 %both, i64 512, i64 0
  ret i64 %bit
}}

define internal i1 @describe_int(ptr %call, ptr %object, i64 %flags, ptr %value) {{
entry:
  %fits = call i1 @int_value(ptr %object, ptr %value)
  br i1 %fits, label %classify, label %unknown
classify:
  %number = load i64, ptr %value
  %is_one = icmp eq i64 %number, 1
  %hidden = and i64 %flags, {NO_ONE}
  %open = icmp eq i64 %hidden, 0
  %one = and i1 %is_one, %open
  %one_bit = select i1 %one, i64 256, i64 0
  %divisible_bit = call i64 @divisible(i64 %number, i64 %flags)
  %short = trunc i64 %number to i32
  %again = sext i32 %short to i64
  %wide = icmp ne i64 %again, %number
  %wide_bit = select i1 %wide, i64 1024, i64 0
  %w0 = or i64 %one_bit, {_INT}
  %w1 = or i64 %w0, %divisible_bit
  %w2 = or i64 %w1, %wide_bit
  call void @push(ptr %call, i64 %w2)
  ret i1 true
unknown:
  ret i1 false
}}

; An array at `address` with these dimensions: its key word and its extent.  False when it is not
; aligned to its items.  Strides count `unit` bytes.
define internal i1 @describe_memory(ptr %call, i64 %word, i64 %flags, i64 %address, i32 %ndim,
                                    ptr %shape, ptr %strides, i64 %unit, i64 %item) {{
entry:
  %low = urem i64 %address, %item
  %straight = icmp eq i64 %low, 0
  br i1 %straight, label %head, label %unknown
head:
  %rank = zext i32 %ndim to i64
  %end = add i64 %address, %item
  br label %loop
loop:
  %i = phi i64 [ 0, %head ], [ %i1, %next ]
  %first = phi i64 [ %address, %head ], [ %first1, %next ]
  %last = phi i64 [ %end, %head ], [ %last1, %next ]
  %more = icmp ult i64 %i, %rank
  br i1 %more, label %dimension, label %note
dimension:
  %sizep = getelementptr i64, ptr %shape, i64 %i
  %stridep = getelementptr i64, ptr %strides, i64 %i
  %size = load i64, ptr %sizep
  %stride = load i64, ptr %stridep
  %empty = icmp eq i64 %size, 0
  br i1 %empty, label %note, label %next
next:
  %steps = sub i64 %size, 1
  %bytes = mul i64 %stride, %unit
  %span = mul i64 %steps, %bytes
  %down = icmp slt i64 %span, 0
  %first_span = select i1 %down, i64 %span, i64 0
  %last_span = select i1 %down, i64 0, i64 %span
  %first1 = add i64 %first, %first_span
  %last1 = add i64 %last, %last_span
  %i1 = add i64 %i, 1
  br label %loop
note:
  ; An array without elements has a number too, and overlaps none.
  %its_first = phi i64 [ %first, %loop ], [ -1, %dimension ]
  %its_last = phi i64 [ %last, %loop ], [ 0, %dimension ]
  %twin = call i64 @note_extent(ptr %call, i64 %address, i64 %its_first, i64 %its_last)
  %nameable = icmp ule i64 %twin, {_MAX_TWINS}
  br i1 %nameable, label %finish, label %unknown
finish:
  %twin_bits = shl i64 %twin, 10
  %divisible_bit = call i64 @divisible(i64 %address, i64 %flags)
  %word1 = or i64 %word, %divisible_bit
  %word2 = or i64 %word1, %twin_bits
  call void @push(ptr %call, i64 %word2)
  ret i1 true
unknown:
  ret i1 false
}}

define internal i1 @describe_numpy(ptr %call, ptr %array, i64 %flags, ptr %value) {{
entry:
  %address = get Array.data %array
  %ndim = get Array.ndim %array
  %shape = get Array.shape %array
  %strides = get Array.strides %array
  %descriptor = get Array.descriptor %array
  %array_flags = get Array.flags %array
  %order = get Descriptor.order %descriptor
  %number = get Descriptor.number %descriptor
  %item32 = get Descriptor.size %descriptor
  %item = sext i32 %item32 to i64
  %swapped = icmp eq i8 %order, {_NUMPY_SWAPPED}
  %classic = icmp sge i32 %number, 0
  %sized = icmp sgt i64 %item, 0
  %native = xor i1 %swapped, true
  %known = and i1 %classic, %native
  %good = and i1 %known, %sized
  br i1 %good, label %describe, label %unknown
describe:
  store i64 %address, ptr %value
  %writable = and i32 %array_flags, {_NUMPY_WRITEABLE}
  %read_only = icmp eq i32 %writable, 0
  %read_only_bit = select i1 %read_only, i64 256, i64 0
  %number64 = zext i32 %number to i64
  %high = shl i64 %number64, 32
  %w0 = or i64 %high, {_NUMPY}
  %w1 = or i64 %w0, %read_only_bit
  %ok = call i1 @describe_memory(ptr %call, i64 %w1, i64 %flags, i64 %address, i32 %ndim,
                                 ptr %shape, ptr %strides, i64 1, i64 %item)
  ret i1 %ok
unknown:
  ret i1 false
}}

; The row of a registered type, or null.
define internal ptr @row_of(ptr %types, ptr %type) {{
entry:
  %count = get Types.count %types
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %compare, label %none
compare:
  %row = at Types.rows[%i] %types
  %known = get TypeRow.type %row
  %same = icmp eq ptr %known, %type
  br i1 %same, label %found, label %next
next:
  %i1 = add i64 %i, 1
  br label %loop
found:
  ret ptr %row
none:
  ret ptr null
}}

; Where an array lies: DLPack's device as bits of the key word.  -1 for where no kernel can run.
define internal i64 @place(ptr %call, ptr %row, ptr %tensor) {{
entry:
  %type = get Tensor.device_type %tensor
  %number32 = get Tensor.device %tensor
  %number = zext i32 %number32 to i64
  switch i32 %type, label %unknown [ i32 {_DLPACK_CPU}, label %cpu
                                     i32 {_DLPACK_CUDA}, label %cuda ]
cpu:
  ret i64 {_DLPACK_CPU << 16}
cuda:
  %ask = get TypeRow.work_stream %row
  set Call.work_stream %call, %ask
  set Call.device %call, %number
  %small = icmp ult i64 %number, {_MAX_DEVICES}
  %high = shl i64 %number, 24
  %bits = or i64 %high, {_DLPACK_CUDA << 16}
  %place = select i1 %small, i64 %bits, i64 -1
  ret i64 %place
unknown:
  ret i64 -1
}}

define internal i1 @describe_tensor(ptr %call, ptr %object, i64 %flags, ptr %value) {{
entry:
  %tensor = alloca %Tensor
  %types = get Call.types %call
  %type = call ptr @type_of(ptr %object)
  %row = call ptr @row_of(ptr %types, ptr %type)
  %foreign = icmp eq ptr %row, null
  br i1 %foreign, label %unknown, label %ask
ask:
  %exchange = get TypeRow.exchange %row
  %failed = call i32 %exchange(ptr %object, ptr %tensor)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %look, label %clear
clear:
  call void @PyErr_Clear()
  br label %unknown
look:
  %place = call i64 @place(ptr %call, ptr %row, ptr %tensor)
  %ndim = get Tensor.ndim %tensor
  %dtype = get Tensor.dtype %tensor
  %shape = get Tensor.shape %tensor
  %strides = get Tensor.strides %tensor
  %offset = get Tensor.byte_offset %tensor
  %usable = icmp sge i64 %place, 0
  %strided = icmp ne ptr %strides, null
  %bits0 = lshr i32 %dtype, 8
  %bits = and i32 %bits0, 255
  %lanes = lshr i32 %dtype, 16
  %item_bits = mul i32 %bits, %lanes
  %item32 = lshr i32 %item_bits, 3
  %item = zext i32 %item32 to i64
  %sized = icmp ne i32 %item32, 0
  %g0 = and i1 %usable, %strided
  %good = and i1 %g0, %sized
  br i1 %good, label %describe, label %unknown
describe:
  %data = get Tensor.data %tensor
  %address = add i64 %data, %offset
  store i64 %address, ptr %value
  %dtype64 = zext i32 %dtype to i64
  %high = shl i64 %dtype64, 32
  %placed = or i64 %high, %place
  %word = or i64 %placed, {_DLPACK}
  %done = call i1 @describe_memory(ptr %call, i64 %word, i64 %flags, i64 %address, i32 %ndim,
                                   ptr %shape, ptr %strides, i64 %item, i64 %item)
  ret i1 %done
unknown:
  ret i1 false
}}

; The key words and the 64-bit value of one argument.  False for what this code does not know.
define internal i1 @describe(ptr %call, ptr %object, i64 %flags, ptr %value) {{
entry:
  %constant = and i64 %flags, {CONSTEXPR}
  %is_constant = icmp ne i64 %constant, 0
  br i1 %is_constant, label %constexpr, label %classify
constexpr:
  %c = call i1 @push_constant(ptr %call, ptr %object)
  ret i1 %c
classify:
  %types = get Call.types %call
  %ndarray = get Types.ndarray %types
  %type = call ptr @type_of(ptr %object)
  %is_array = icmp eq ptr %type, %ndarray
  br i1 %is_array, label %array, label %try_int
array:
  %a = call i1 @describe_numpy(ptr %call, ptr %object, i64 %flags, ptr %value)
  ret i1 %a
try_int:
  %is_int = icmp eq ptr %type, @PyLong_Type
  br i1 %is_int, label %int, label %try_float
int:
  %i = call i1 @describe_int(ptr %call, ptr %object, i64 %flags, ptr %value)
  ret i1 %i
try_float:
  %is_float = icmp eq ptr %type, @PyFloat_Type
  br i1 %is_float, label %float, label %try_bool
float:
  %real = call double @PyFloat_AsDouble(ptr %object)
  store double %real, ptr %value
  call void @push(ptr %call, i64 {_FLOAT})
  ret i1 true
try_bool:
  %is_bool = icmp eq ptr %type, @PyBool_Type
  br i1 %is_bool, label %bool, label %try_none
bool:
  %is_true = icmp eq ptr %object, @_Py_TrueStruct
  %bit = zext i1 %is_true to i64
  store i64 %bit, ptr %value
  call void @push(ptr %call, i64 {_BOOL})
  ret i1 true
try_none:
  %is_none = icmp eq ptr %object, @_Py_NoneStruct
  br i1 %is_none, label %none, label %tensor
none:
  call void @push(ptr %call, i64 {_NONE})
  ret i1 true
tensor:
  %t = call i1 @describe_tensor(ptr %call, ptr %object, i64 %flags, ptr %value)
  ret i1 %t
}}
"""
