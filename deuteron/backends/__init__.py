"""What carries out tile IR: the interpreter (the oracle), the CPU, LLVM shared by both machines."""
