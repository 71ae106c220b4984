package inherited

import (
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func pipe(t *testing.T) int {
	var fds [2]int
	require.NoError(t, syscall.Pipe(fds[:]))
	t.Cleanup(func() {
		syscall.Close(fds[0])
		syscall.Close(fds[1])
	})
	return fds[0]
}

func TestTake(t *testing.T) {
	connection, secret := pipe(t), pipe(t)
	list, err := Append("", PMI, connection, connection)
	require.NoError(t, err)
	list, err = Append(list, Secret, secret, secret)
	require.NoError(t, err)
	t.Setenv(Variable, list)
	t.Setenv("PMI_FD", strconv.Itoa(connection))

	fd, err := Take(Secret)
	require.NoError(t, err)
	require.Equal(t, secret, fd)
	flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFD, 0)
	require.Zero(t, errno)
	require.NotZero(t, flags&syscall.FD_CLOEXEC)
	fd, err = Take(Recorder)
	require.NoError(t, err)
	require.Equal(t, -1, fd)

	// A file of somebody else is at the number.
	require.NoError(t, syscall.Dup3(pipe(t), secret, 0))
	_, err = Take(Secret)
	require.ErrorIs(t, err, ErrReplaced)
	require.ErrorContains(t, err, "descriptor "+strconv.Itoa(secret)+" (secret)")
	require.NoError(t, syscall.Close(secret))
	_, err = Take(Secret)
	require.ErrorIs(t, err, ErrReplaced)

	// Another launcher has started this process in a rank of the first.
	t.Setenv("PMI_FD", strconv.Itoa(connection+1000))
	fd, err = Take(Secret)
	require.NoError(t, err)
	require.Equal(t, -1, fd)
}

func FuzzParse(f *testing.F) {
	f.Add("pmi=3:1:2,secret=4:5:6")
	f.Add("pmi=3,secret=,=,x")
	f.Add("secret=1:2:3,secret=99999999999:1:1")
	f.Fuzz(func(t *testing.T, list string) {
		for name, file := range parse(list) {
			require.Greater(t, file.number, 2, name) // standard input and output are nobody else's
		}
	})
}
