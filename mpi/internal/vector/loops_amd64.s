#include "textflag.h"

// Each function combines n blocks of 128 bytes: inout = inout op in, with the 256-bit instructions of AVX2.

#define BEGIN \
	MOVQ inout+0(FP), DI \
	MOVQ in+8(FP), SI    \
	MOVQ n+16(FP), CX

#define NEXT \
	ADDQ $128, DI \
	ADDQ $128, SI \
	DECQ CX

// LOOP is a function whose operator is one instruction.
#define LOOP(name, op) \
TEXT name(SB), NOSPLIT, $0-24      \
	BEGIN                          \
next:                              \
	VMOVUPD (DI), Y0               \
	VMOVUPD 32(DI), Y1             \
	VMOVUPD 64(DI), Y2             \
	VMOVUPD 96(DI), Y3             \
	op      (SI), Y0, Y0           \
	op      32(SI), Y1, Y1         \
	op      64(SI), Y2, Y2         \
	op      96(SI), Y3, Y3         \
	VMOVUPD Y0, (DI)               \
	VMOVUPD Y1, 32(DI)             \
	VMOVUPD Y2, 64(DI)             \
	VMOVUPD Y3, 96(DI)             \
	NEXT                           \
	JNZ     next                   \
	VZEROUPPER                     \
	RET

// EXTREME is a step of a maximum or minimum of floating-point numbers. The instruction gives its second
// operand if one is a NaN, or both are zeros. So it is done both ways; join makes one of two zeros, which
// differ in their sign at most; and where the operands are unordered all bits are set, which is a NaN.
#define EXTREME(op, join, cmp, at) \
	VMOVUPD at(DI), Y0     \
	VMOVUPD at(SI), Y1     \
	op      Y1, Y0, Y2     \
	op      Y0, Y1, Y3     \
	join    Y2, Y3, Y2     \
	cmp     $3, Y1, Y0, Y4 \
	VORPD   Y4, Y2, Y2     \
	VMOVUPD Y2, at(DI)

#define EXTREMES(name, op, join, cmp) \
TEXT name(SB), NOSPLIT, $0-24  \
	BEGIN                      \
next:                          \
	EXTREME(op, join, cmp, 0)  \
	EXTREME(op, join, cmp, 32) \
	EXTREME(op, join, cmp, 64) \
	EXTREME(op, join, cmp, 96) \
	NEXT                       \
	JNZ next                   \
	VZEROUPPER                 \
	RET

LOOP(·sumFloat64, VADDPD)
LOOP(·sumFloat32, VADDPS)
LOOP(·sum64, VPADDQ)
LOOP(·sum32, VPADDD)
LOOP(·sum16, VPADDW)
LOOP(·sum8, VPADDB)
LOOP(·prodFloat64, VMULPD)
LOOP(·prodFloat32, VMULPS)
LOOP(·prod32, VPMULLD)
LOOP(·prod16, VPMULLW)
LOOP(·maxInt32, VPMAXSD)
LOOP(·maxInt16, VPMAXSW)
LOOP(·maxInt8, VPMAXSB)
LOOP(·maxUint32, VPMAXUD)
LOOP(·maxUint16, VPMAXUW)
LOOP(·maxUint8, VPMAXUB)
LOOP(·minInt32, VPMINSD)
LOOP(·minInt16, VPMINSW)
LOOP(·minInt8, VPMINSB)
LOOP(·minUint32, VPMINUD)
LOOP(·minUint16, VPMINUW)
LOOP(·minUint8, VPMINUB)
LOOP(·and, VPAND)
LOOP(·or, VPOR)
LOOP(·xor, VPXOR)
EXTREMES(·maxFloat64, VMAXPD, VANDPD, VCMPPD)
EXTREMES(·maxFloat32, VMAXPS, VANDPS, VCMPPS)
EXTREMES(·minFloat64, VMINPD, VORPD, VCMPPD)
EXTREMES(·minFloat32, VMINPS, VORPS, VCMPPS)
