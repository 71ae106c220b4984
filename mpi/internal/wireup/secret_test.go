package wireup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/inherited"
	"github.com/weft-mpi/weft/internal/pmi"
	"github.com/weft-mpi/weft/internal/setting"
)

// space is a launcher's key-value space, which remembers all that it was told.
type space struct {
	values  map[string]string
	network bool // ranks reach the launcher over it
}

func newSpace() *space { return &space{values: make(map[string]string)} }

type member struct {
	*space
	rank int
}

func (m member) Rank() int           { return m.rank }
func (m member) OnThisMachine() bool { return !m.network }

func (m member) Put(_ context.Context, key, value string) error {
	if len(value) > 600 || strings.ContainsAny(value, " \n") {
		return fmt.Errorf("not every launcher takes the value %q", value)
	}
	m.values[key] = value
	return nil
}

func (m member) Get(_ context.Context, key string) (string, error) {
	if v, ok := m.values[key]; ok {
		return v, nil
	}
	return "", pmi.ErrNotFound
}

// Barrier has nothing to wait for: the tests have rank 0 come first.
func (m member) Barrier(context.Context) error { return nil }

// learnSecret is what Join does about the secret.
func learnSecret(ctx context.Context, kv keyValues) ([secretSize]byte, error) {
	g, err := givenSecret(setting.Environment())
	if err != nil {
		return g.secret, err
	}
	return agree(ctx, kv, g)
}

// learn has the ranks learn the secret, each with its own WEFT_SECRET_FILE, in order.
func learn(t *testing.T, s *space, files ...string) (secrets [][secretSize]byte, errs []error) {
	t.Helper()
	for rank, file := range files {
		t.Setenv(setting.SecretFile.Name, file)
		secret, err := learnSecret(t.Context(), member{s, rank})
		secrets, errs = append(secrets, secret), append(errs, err)
	}
	return secrets, errs
}

// secretFile writes a file with a mode.
func secretFile(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	require.NoError(t, os.Chmod(name, mode))
	return name
}

func TestSecretIsMadeByRank0(t *testing.T) {
	secrets, errs := learn(t, newSpace(), "", "", "")
	for rank := range secrets {
		require.NoError(t, errs[rank])
		require.Equal(t, secrets[0], secrets[rank])
	}
	require.NotZero(t, secrets[0])
	other, _ := learn(t, newSpace(), "")
	require.NotEqual(t, secrets[0], other[0], "each job has its own")
}

func TestSecretFromAFileDoesNotPassThroughTheLauncher(t *testing.T) {
	text := strings.Repeat("secret ", 8)
	file, s := secretFile(t, text, 0o600), newSpace()
	s.network = true
	secrets, errs := learn(t, s, file, secretFile(t, text, 0o400))
	require.NoError(t, errs[0])
	require.NoError(t, errs[1])
	require.Equal(t, sha256.Sum256([]byte(text)), secrets[0])
	require.Equal(t, secrets[0], secrets[1])
	require.Len(t, s.values, 1)
	require.NotContains(t, s.values[secretKey], fmt.Sprintf("%x", secrets[0][:4]))
}

// What a rank says to a launcher over the network could be read there. It refuses before anything is said.
func TestSecretIsNotSentOverTheNetwork(t *testing.T) {
	s := newSpace()
	s.network = true
	_, errs := learn(t, s, "", "")
	for _, err := range errs {
		require.ErrorContains(t, err, "set WEFT_SECRET_FILE=FILE")
		require.ErrorContains(t, err, "chmod 600")
	}
	require.Empty(t, s.values)
}

func TestSecretsThatDifferAreNoticed(t *testing.T) {
	a, b := secretFile(t, strings.Repeat("a", 32), 0o600), secretFile(t, strings.Repeat("b", 32), 0o600)
	_, errs := learn(t, newSpace(), a, b)
	require.ErrorContains(t, errs[1], "rank 0 has another secret in its file")
	_, errs = learn(t, newSpace(), a, "")
	require.ErrorContains(t, errs[1], "here WEFT_SECRET_FILE is not set")
	_, errs = learn(t, newSpace(), "", b)
	require.ErrorContains(t, errs[1], "WEFT_SECRET_FILE is not set for rank 0")

	t.Setenv(setting.SecretFile.Name, "")
	s := newSpace()
	_, err := learnSecret(t.Context(), member{s, 1})
	require.ErrorContains(t, err, "rank 0 has published no secret")
	for _, value := range []string{"", "zz", strings.Repeat("0", 62), strings.Repeat("0", 66), "file-"} {
		s.values[secretKey] = value
		_, err := learnSecret(t.Context(), member{s, 1})
		require.ErrorContains(t, err, "rank 0", value)
	}
}

func TestSecretFileThatOthersCanUseIsRefused(t *testing.T) {
	enough := strings.Repeat("x", secretSize)
	for mode := os.FileMode(0); mode <= 0o777; mode++ {
		if mode&0o400 == 0 || mode&0o300 != 0 {
			continue // its owner's bits make no difference, if the file can be read
		}
		_, err := readFile(secretFile(t, enough, mode))
		if mode&0o077 == 0 || mode == 0o440 && os.Geteuid() == 0 {
			require.NoError(t, err, "mode %04o", mode)
		} else {
			require.ErrorContains(t, err, "chmod 600", "mode %04o", mode)
		}
	}
}

func TestSecretFileRefusals(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	link := filepath.Join(dir, "link")
	open := secretFile(t, strings.Repeat("x", 64), 0o644)
	require.NoError(t, os.Symlink(open, link))
	for name, want := range map[string]string{
		filepath.Join(dir, "none"): "head -c 32 /dev/urandom",
		dir:                        "not a regular file",
		fifo:                       "not a regular file",
		link:                       "chmod 600",
		secretFile(t, strings.Repeat("x", 31), 0o600):          "31 bytes are too few",
		secretFile(t, "", 0o600):                               "0 bytes are too few",
		secretFile(t, strings.Repeat("x", maxInFile+1), 0o600): "that is no secret",
	} {
		t.Setenv(setting.SecretFile.Name, name)
		s := newSpace()
		_, err := learnSecret(t.Context(), member{s, 0})
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "WEFT_SECRET_FILE="+name)
		require.Empty(t, s.values)
	}
	require.NoError(t, func() error {
		_, err := readFile(secretFile(t, strings.Repeat("x", maxInFile),
			0o600))
		return err
	}())
}

// A file of another user is refused even where this process may read it, as root may.
func TestSecretFileOfAnotherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	name := secretFile(t, strings.Repeat("x", 32), 0o600)
	require.NoError(t, os.Chown(name, 1234, -1))
	_, err := readFile(name)
	require.ErrorContains(t, err, "it belongs to user 1234, not to the user of this process, 0")
}

// pipeWith is the descriptor of a pipe that holds some bytes and has ended.
func pipeWith(t *testing.T, text []byte) int {
	t.Helper()
	var fds [2]int
	require.NoError(t, syscall.Pipe(fds[:]))
	_, err := syscall.Write(fds[1], append([]byte{}, text...))
	require.NoError(t, err)
	require.NoError(t, syscall.Close(fds[1]))
	return fds[0]
}

// inherit has this process inherit a descriptor, as a rank does.
func inherit(t *testing.T, name string, fd int) {
	t.Helper()
	list, err := inherited.Append("", inherited.PMI, fd, fd)
	require.NoError(t, err)
	list, err = inherited.Append(list, name, fd, fd)
	require.NoError(t, err)
	t.Setenv(inherited.Variable, list)
	t.Setenv("PMI_FD", fmt.Sprint(fd))
}

func TestSecretFromTheLaunchersPipe(t *testing.T) {
	want := bytes.Repeat([]byte{7}, secretSize)
	inherit(t, inherited.Secret, pipeWith(t, want))
	t.Setenv(setting.SecretFile.Name, "/no/such/file")
	s := newSpace()
	secret, err := learnSecret(t.Context(), member{s, 0})
	require.NoError(t, err)
	require.Equal(t, want, secret[:])
	require.Empty(t, s.values, "the launcher's key-value space sees nothing of it")
}

func TestSecretFromABadPipe(t *testing.T) {
	file, err := os.Open(secretFile(t, strings.Repeat("x", 32), 0o600))
	require.NoError(t, err)
	defer file.Close()
	pipe := pipeWith(t, []byte("x"))
	inherit(t, inherited.Secret, pipe)
	_, err = learnSecret(t.Context(), member{newSpace(), 0})
	require.ErrorContains(t, err, "1 of 32 bytes")

	pipe = pipeWith(t, nil)
	inherit(t, inherited.Secret, pipe)
	require.NoError(t, syscall.Dup3(int(file.Fd()), pipe, 0))
	defer syscall.Close(pipe)
	_, err = learnSecret(t.Context(), member{newSpace(), 0})
	require.ErrorIs(t, err, inherited.ErrReplaced)
	at, err := file.Seek(0, io.SeekCurrent)
	require.NoError(t, err)
	require.Zero(t, at, "nothing is read of another's file")
}

// So Kubernetes mounts a Secret for a pod with an fsGroup.
func TestSecretFileOfRootsForAGroup(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make files of others")
	}
	text := strings.Repeat("x", secretSize)
	for _, c := range []struct {
		user, group int
		mode        os.FileMode
		good        bool
	}{
		{0, os.Getegid(), 0o440, true}, {0, os.Getegid(), 0o040, true}, {0, os.Getegid(), 0o460, false},
		{0, os.Getegid(), 0o640, false}, {0, os.Getegid(), 0o444, false}, {0, 54321, 0o440, false},
		{54321, os.Getegid(), 0o440, false},
	} {
		file := secretFile(t, text, c.mode)
		require.NoError(t, os.Chown(file, c.user, c.group))
		_, err := readFile(file)
		require.Equal(t, c.good, err == nil, "%+v: %v", c, err)
	}
}
