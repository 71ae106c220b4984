#include "textflag.h"

// func StoreBarrier()
TEXT ·StoreBarrier(SB), NOSPLIT, $0-0
	DMB $0xa // ISHST
	RET

// func FullBarrier()
TEXT ·FullBarrier(SB), NOSPLIT, $0-0
	DMB $0xb // ISH
	RET

// func LoadBarrier()
TEXT ·LoadBarrier(SB), NOSPLIT, $0-0
	DMB $0x9 // ISHLD
	RET
