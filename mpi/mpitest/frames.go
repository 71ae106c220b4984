package mpitest

// frame calls the body of a rank through a function with the rank's number, so that each stack of the body
// shows the rank: in a report of the race detector, in a panic and in a debugger.
func frame(rank int, body func() error) error {
	if rank < len(frames) {
		return frames[rank](body)
	}
	return rankFrom16(body)
}

var frames = [...]func(body func() error) error{
	rank0, rank1, rank2, rank3, rank4, rank5, rank6, rank7,
	rank8, rank9, rank10, rank11, rank12, rank13, rank14, rank15,
}

//go:noinline
func rank0(body func() error) error { return body() }

//go:noinline
func rank1(body func() error) error { return body() }

//go:noinline
func rank2(body func() error) error { return body() }

//go:noinline
func rank3(body func() error) error { return body() }

//go:noinline
func rank4(body func() error) error { return body() }

//go:noinline
func rank5(body func() error) error { return body() }

//go:noinline
func rank6(body func() error) error { return body() }

//go:noinline
func rank7(body func() error) error { return body() }

//go:noinline
func rank8(body func() error) error { return body() }

//go:noinline
func rank9(body func() error) error { return body() }

//go:noinline
func rank10(body func() error) error { return body() }

//go:noinline
func rank11(body func() error) error { return body() }

//go:noinline
func rank12(body func() error) error { return body() }

//go:noinline
func rank13(body func() error) error { return body() }

//go:noinline
func rank14(body func() error) error { return body() }

//go:noinline
func rank15(body func() error) error { return body() }

//go:noinline
func rankFrom16(body func() error) error { return body() }
