#include "textflag.h"

// func AwaitLoads()
TEXT ·AwaitLoads(SB), NOSPLIT, $0-0
	LFENCE
	RET
