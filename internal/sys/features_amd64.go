package sys

import "golang.org/x/sys/cpu"

// AVX2 reports whether the processor has 256-bit vector instructions, and the system keeps their registers.
var AVX2 = cpu.X86.HasAVX2
