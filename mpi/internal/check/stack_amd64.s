#include "textflag.h"

// func stack(pcs *[depth]uintptr)
TEXT ·stack(SB), NOSPLIT|NOFRAME, $0-8
	MOVQ pcs+0(FP), DI
	MOVQ BP, SI
	MOVQ $8, CX

next:
	TESTQ SI, SI
	JZ    done
	MOVQ  8(SI), AX
	MOVQ  AX, (DI)
	ADDQ  $8, DI
	MOVQ  (SI), SI
	DECQ  CX
	JNZ   next

done:
	RET
