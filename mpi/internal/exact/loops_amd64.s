#include "textflag.h"

// Four numbers at a time, or eight, with the 256-bit instructions of AVX2.

DATA nan64<>+0(SB)/8, $0x7FF8000000000001
GLOBL nan64<>(SB), RODATA|NOPTR, $8
DATA nan32<>+0(SB)/4, $0x7FC00000
GLOBL nan32<>(SB), RODATA|NOPTR, $4
DATA magnitude<>+0(SB)/8, $0x7FFFFFFFFFFFFFFF
GLOBL magnitude<>(SB), RODATA|NOPTR, $8

// PAIRS is a function that adds pairs, so many at a time: name(dst, a, b, n). Every NaN becomes the same one.
#define PAIRS(name, atOnce, broadcast, nan, add, cmp, blend) \
TEXT name(SB), NOSPLIT, $0-32        \
	MOVQ      dst+0(FP), DI          \
	MOVQ      a+8(FP), SI            \
	MOVQ      b+16(FP), DX           \
	MOVQ      n+24(FP), CX           \
	broadcast nan<>(SB), Y15         \
next:                                \
	VMOVUPD   (SI), Y0               \
	add       (DX), Y0, Y0           \
	cmp       $3, Y0, Y0, Y1         \
	blend     Y1, Y15, Y0, Y0        \
	VMOVUPD   Y0, (DI)               \
	ADDQ      $32, SI                \
	ADDQ      $32, DX                \
	ADDQ      $32, DI                \
	SUBQ      atOnce, CX             \
	JNZ       next                   \
	VZEROUPPER                       \
	RET

PAIRS(·addPairs64, $4, VBROADCASTSD, nan64, VADDPD, VCMPPD, VBLENDVPD)
PAIRS(·addPairs32, $8, VBROADCASTSS, nan32, VADDPS, VCMPPS, VBLENDVPS)

// TWOSUM leaves the sum of a and b in Y2, and its error in err, which may be b.
#define TWOSUM(a, b, err) \
	VADDPD b, a, Y2    \
	VSUBPD a, Y2, Y3   \
	VSUBPD Y3, Y2, Y4  \
	VSUBPD Y4, a, Y4   \
	VSUBPD Y3, b, err  \
	VADDPD err, Y4, err

// BEGIN is a function that leaves the sums of pairs, and their errors: name(sums, rests, a, b, n). A number has
// so many bytes, of which load makes a float64.
#define BEGIN(name, load, bytes) \
TEXT name(SB), NOSPLIT, $0-40   \
	MOVQ    sums+0(FP), R8      \
	MOVQ    rests+8(FP), R9     \
	MOVQ    a+16(FP), SI        \
	MOVQ    b+24(FP), DX        \
	MOVQ    n+32(FP), CX        \
next:                           \
	load    (SI), Y0            \
	load    (DX), Y1            \
	TWOSUM(Y0, Y1, Y5)          \
	VMOVUPD Y2, (R8)            \
	VMOVUPD Y5, (R9)            \
	ADDQ    $(4*bytes), SI      \
	ADDQ    $(4*bytes), DX      \
	ADDQ    $32, R8             \
	ADDQ    $32, R9             \
	SUBQ    $4, CX              \
	JNZ     next                \
	VZEROUPPER                  \
	RET

BEGIN(·begin64, VMOVUPD, 8)
BEGIN(·begin32, VCVTPS2PD, 4)

// ACCUMULATE is a function that adds numbers to sums, and their errors to the errors: name(sums, rests, x, n,
// lost).
#define ACCUMULATE(name, load, bytes) \
TEXT name(SB), NOSPLIT, $0-40            \
	MOVQ         sums+0(FP), R8          \
	MOVQ         rests+8(FP), R9         \
	MOVQ         x+16(FP), SI            \
	MOVQ         n+24(FP), CX            \
	MOVQ         lost+32(FP), DX         \
	VBROADCASTSD magnitude<>(SB), Y12    \
	VMOVUPD      (DX), Y13               \
next:                                    \
	load         (SI), Y1                \
	VMOVUPD      (R8), Y0                \
	TWOSUM(Y0, Y1, Y5)                   \
	VMOVUPD      Y2, (R8)                \
	VMOVUPD      (R9), Y0                \
	TWOSUM(Y0, Y5, Y5)                   \
	VMOVUPD      Y2, (R9)                \
	VANDPD       Y12, Y5, Y5             \
	VORPD        Y5, Y13, Y13            \
	ADDQ         $(4*bytes), SI          \
	ADDQ         $32, R8                 \
	ADDQ         $32, R9                 \
	SUBQ         $4, CX                  \
	JNZ          next                    \
	VMOVUPD      Y13, (DX)               \
	VZEROUPPER                           \
	RET

ACCUMULATE(·accumulate64, VMOVUPD, 8)
ACCUMULATE(·accumulate32, VCVTPS2PD, 4)

// func finish64(sums, rests *float64, n int, lost *[4]uint64)
TEXT ·finish64(SB), NOSPLIT, $0-32
	MOVQ    sums+0(FP), DI
	MOVQ    rests+8(FP), SI
	MOVQ    n+16(FP), CX
	MOVQ    lost+24(FP), DX
	VXORPD  Y14, Y14, Y14
	VMOVUPD (DX), Y13

next:
	VMOVUPD (DI), Y0
	VADDPD  (SI), Y0, Y0
	VADDPD  Y14, Y0, Y0
	VMOVUPD Y0, (DI)
	VSUBPD  Y0, Y0, Y1
	VORPD   Y1, Y13, Y13
	ADDQ    $32, DI
	ADDQ    $32, SI
	SUBQ    $4, CX
	JNZ     next
	VMOVUPD Y13, (DX)
	VZEROUPPER
	RET
