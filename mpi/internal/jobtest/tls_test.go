package jobtest_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/mpi"
)

// With WEFT_TLS=on a program works as without: messages of every protocol, from each rank to each, and
// collectives.
func TestEncrypted(t *testing.T) {
	r := launch(t, 3, encrypted, "WEFT_TLS=on")
	require.NoError(t, r.Failure, "standard error:\n%s", r.Err)
}

// The log tells of each connection whether it is encrypted.
func TestEncrypted_IsLogged(t *testing.T) {
	t.Parallel()
	for setting, says := range map[string]string{"on": `"TLS 1.3"`, "off": "off"} {
		r := launch(t, 2, encrypted, "WEFT_FABRIC=tcp", "WEFT_LANES=2", "WEFT_TLS="+setting, "WEFT_LOG=debug")
		require.NoError(t, r.Failure, r.Err)
		told := regexp.MustCompile(`msg=connected .*\bpeer=[01] from=\S+ to=\S+ tls=` + says + `\n`)
		require.GreaterOrEqual(t, len(told.FindAllString(r.Err, -1)), 2, r.Err)
		require.Equal(t, strings.Count(r.Err, "msg=connected "), strings.Count(r.Err, " tls="+says), r.Err)
	}
}

var encrypted = body("encrypted", func(_ context.Context, world *mpi.Comm) error {
	pattern := func(b []byte, source, seq int) {
		for i := range b {
			b[i] = byte(source*31 + seq*17 + i*7 + i>>8)
		}
	}
	me, n := world.Rank(), world.Size()
	for seq, size := range []int{0, 1, 300, 5000, 20_000, 100_000, 1 << 20} {
		for shift := range n {
			to, from := (me+shift)%n, (me-shift+n)%n
			out, in, wanted := make([]byte, size), make([]byte, size), make([]byte, size)
			pattern(out, me, seq)
			pattern(wanted, from, seq)
			if _, err := mpi.Sendrecv(world, out, to, seq, in, from, seq); err != nil {
				return err
			}
			if string(in) != string(wanted) {
				return fmt.Errorf("%d bytes of rank %d are others than it sent", size, from)
			}
		}
	}
	sum := make([]int, 10_000)
	ones := make([]int, len(sum))
	for i := range ones {
		ones[i] = me + i
	}
	if err := mpi.Allreduce(world, ones, sum, mpi.Sum[int]()); err != nil {
		return err
	}
	for i, s := range sum {
		if err := want("sum", s, n*i+n*(n-1)/2); err != nil {
			return err
		}
	}
	return nil
})
