package sys

// GrowStack makes the calling goroutine's stack large enough for most calls. It would grow in several steps
// otherwise, deep in calls, each of whose frames the runtime then looks up.
//
//go:noinline
func GrowStack() byte {
	var room [stackRoom]byte
	return first(&room)
}

const stackRoom = 6 << 10

//go:noinline
func first(room *[stackRoom]byte) byte { return room[0] }
