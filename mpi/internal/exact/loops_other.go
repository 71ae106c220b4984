//go:build !amd64

package exact

const vectorized = false

func addPairs64(_, _, _ *float64, _ int) { panic("not reached") }

func addPairs32(_, _, _ *float32, _ int) { panic("not reached") }

func begin64(_, _, _, _ *float64, _ int) { panic("not reached") }

func begin32(_, _ *float64, _, _ *float32, _ int) { panic("not reached") }

func accumulate64(_, _, _ *float64, _ int, _ *[4]uint64) { panic("not reached") }

func accumulate32(_, _ *float64, _ *float32, _ int, _ *[4]uint64) { panic("not reached") }

func finish64(_, _ *float64, _ int, _ *[4]uint64) { panic("not reached") }
