"""What kernels can ask of NVIDIA GPUs only: `from deuteron.language.extra import cuda`."""

from deuteron.lang.cuda_registers import globaltimer, num_threads, num_warps, smid

__all__ = ["globaltimer", "num_threads", "num_warps", "smid"]
