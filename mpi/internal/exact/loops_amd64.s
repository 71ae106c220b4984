#include "textflag.h"

// Four numbers at a time, with the 256-bit instructions of AVX2.

DATA nan64<>+0(SB)/8, $0x7FF8000000000001
GLOBL nan64<>(SB), RODATA|NOPTR, $8
DATA nan32<>+0(SB)/4, $0x7FC00000
GLOBL nan32<>(SB), RODATA|NOPTR, $4
DATA magnitude<>+0(SB)/8, $0x7FFFFFFFFFFFFFFF
GLOBL magnitude<>(SB), RODATA|NOPTR, $8

// func addPairs64(dst, a, b *float64, n int)
TEXT ·addPairs64(SB), NOSPLIT, $0-32
	MOVQ         dst+0(FP), DI
	MOVQ         a+8(FP), SI
	MOVQ         b+16(FP), DX
	MOVQ         n+24(FP), CX
	VXORPD       Y14, Y14, Y14
	VBROADCASTSD nan64<>(SB), Y15

next:
	VMOVUPD   (SI), Y0
	VADDPD    (DX), Y0, Y0
	VADDPD    Y14, Y0, Y0
	VCMPPD    $3, Y0, Y0, Y1
	VBLENDVPD Y1, Y15, Y0, Y0
	VMOVUPD   Y0, (DI)
	ADDQ      $32, SI
	ADDQ      $32, DX
	ADDQ      $32, DI
	SUBQ      $4, CX
	JNZ       next
	VZEROUPPER
	RET

// func addPairs32(dst, a, b *float32, n int)
TEXT ·addPairs32(SB), NOSPLIT, $0-32
	MOVQ         dst+0(FP), DI
	MOVQ         a+8(FP), SI
	MOVQ         b+16(FP), DX
	MOVQ         n+24(FP), CX
	VXORPS       Y14, Y14, Y14
	VBROADCASTSS nan32<>(SB), Y15

next:
	VMOVUPS   (SI), Y0
	VADDPS    (DX), Y0, Y0
	VADDPS    Y14, Y0, Y0
	VCMPPS    $3, Y0, Y0, Y1
	VBLENDVPS Y1, Y15, Y0, Y0
	VMOVUPS   Y0, (DI)
	ADDQ      $32, SI
	ADDQ      $32, DX
	ADDQ      $32, DI
	SUBQ      $8, CX
	JNZ       next
	VZEROUPPER
	RET

// TWOSUM leaves the sum of a and b in Y2, and its error in err, which may be b.
#define TWOSUM(a, b, err) \
	VADDPD b, a, Y2    \
	VSUBPD a, Y2, Y3   \
	VSUBPD Y3, Y2, Y4  \
	VSUBPD Y4, a, Y4   \
	VSUBPD Y3, b, err  \
	VADDPD err, Y4, err

// BEGIN leaves the sums of Y0 and Y1 at R8, and their errors at R9.
#define BEGIN \
	TWOSUM(Y0, Y1, Y5)  \
	VMOVUPD Y2, (R8)    \
	VMOVUPD Y5, (R9)    \
	ADDQ    $32, R8     \
	ADDQ    $32, R9     \
	SUBQ    $4, CX

// ADD adds Y1 to the sums at R8 and their errors at R9. Y13 is not zero if an error had an error.
#define ADD \
	VMOVUPD (R8), Y0     \
	TWOSUM(Y0, Y1, Y5)   \
	VMOVUPD Y2, (R8)     \
	VMOVUPD (R9), Y0     \
	TWOSUM(Y0, Y5, Y5)   \
	VMOVUPD Y2, (R9)     \
	VANDPD  Y12, Y5, Y5  \
	VORPD   Y5, Y13, Y13 \
	ADDQ    $32, R8      \
	ADDQ    $32, R9      \
	SUBQ    $4, CX

// func begin64(sums, rests, a, b *float64, n int)
TEXT ·begin64(SB), NOSPLIT, $0-40
	MOVQ sums+0(FP), R8
	MOVQ rests+8(FP), R9
	MOVQ a+16(FP), SI
	MOVQ b+24(FP), DX
	MOVQ n+32(FP), CX

next:
	VMOVUPD (SI), Y0
	VMOVUPD (DX), Y1
	ADDQ    $32, SI
	ADDQ    $32, DX
	BEGIN
	JNZ     next
	VZEROUPPER
	RET

// func begin32(sums, rests *float64, a, b *float32, n int)
TEXT ·begin32(SB), NOSPLIT, $0-40
	MOVQ sums+0(FP), R8
	MOVQ rests+8(FP), R9
	MOVQ a+16(FP), SI
	MOVQ b+24(FP), DX
	MOVQ n+32(FP), CX

next:
	VCVTPS2PD (SI), Y0
	VCVTPS2PD (DX), Y1
	ADDQ      $16, SI
	ADDQ      $16, DX
	BEGIN
	JNZ       next
	VZEROUPPER
	RET

// func accumulate64(sums, rests, x *float64, n int, lost *[4]uint64)
TEXT ·accumulate64(SB), NOSPLIT, $0-40
	MOVQ         sums+0(FP), R8
	MOVQ         rests+8(FP), R9
	MOVQ         x+16(FP), SI
	MOVQ         n+24(FP), CX
	MOVQ         lost+32(FP), DX
	VBROADCASTSD magnitude<>(SB), Y12
	VMOVUPD      (DX), Y13

next:
	VMOVUPD (SI), Y1
	ADDQ    $32, SI
	ADD
	JNZ     next
	VMOVUPD Y13, (DX)
	VZEROUPPER
	RET

// func accumulate32(sums, rests *float64, x *float32, n int, lost *[4]uint64)
TEXT ·accumulate32(SB), NOSPLIT, $0-40
	MOVQ         sums+0(FP), R8
	MOVQ         rests+8(FP), R9
	MOVQ         x+16(FP), SI
	MOVQ         n+24(FP), CX
	MOVQ         lost+32(FP), DX
	VBROADCASTSD magnitude<>(SB), Y12
	VMOVUPD      (DX), Y13

next:
	VCVTPS2PD (SI), Y1
	ADDQ      $16, SI
	ADD
	JNZ       next
	VMOVUPD   Y13, (DX)
	VZEROUPPER
	RET

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
