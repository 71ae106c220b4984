package launcher

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher/internal/build"
)

// A host answers with the file of a program whose content is right, and says what is wrong otherwise.
func TestStager(t *testing.T) {
	dir := t.TempDir()
	sum := sha256.Sum256([]byte("abcd"))
	right := hex.EncodeToString(sum[:])
	folder := func() (string, error) { return os.MkdirTemp(dir, "") }
	s := &stager{folder: folder, wanted: []programRequest{{Name: "/x/prog", Hash: right}, {Name: "other", Hash: "00"}}}
	send := func(program int, parts ...string) (reply stageReply) {
		for _, part := range parts {
			answer, err := s.take(program, []byte(part))
			require.NoError(t, err)
			require.Nil(t, answer)
		}
		answer, err := s.take(program, nil)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(answer, &reply))
		return reply
	}
	reply := send(0, "ab", "cd")
	require.Empty(t, reply.Problem)
	require.Equal(t, "prog", filepath.Base(reply.File))
	got, err := build.ContentHash(reply.File)
	require.NoError(t, err)
	require.Equal(t, right, got)
	require.Equal(t, "other has changed while it was copied", send(1, "abcd").Problem)

	s.folder = func() (string, error) { return "", os.ErrPermission }
	require.Contains(t, send(0, "ab", "cd").Problem, "/x/prog cannot be copied: permission denied")
	s.folder = folder
	require.Empty(t, send(0, "abcd").Problem)

	_, err = s.take(2, nil)
	require.ErrorContains(t, err, "was not asked for")
	s.take(0, []byte("ab"))
	_, err = s.take(1, []byte("ab"))
	require.ErrorContains(t, err, "was not asked for")
}

// A program that is not the same here has to be copied.
func TestPlanOfProgramsToStage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "prog")
	require.NoError(t, os.WriteFile(file, []byte("abcd"), 0o700))
	hash, err := build.ContentHash(file)
	require.NoError(t, err)
	plan, err := new(planner).plan(&planRequest{Programs: []programRequest{
		{Name: file, Hash: hash}, {Name: file, Hash: "00"}, {}, {Name: file + "2", Hash: hash},
	}})
	require.NoError(t, err)
	require.Equal(t, []string{file, "", "", ""}, plan.Files)
	require.Equal(t, []int{1, 3}, plan.Missing)
	require.Empty(t, plan.Problems)
}
