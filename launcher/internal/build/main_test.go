package build

import (
	"os"
	"testing"

	"github.com/weft-mpi/weft/internal/sys"
)

func TestMain(m *testing.M) {
	sys.UnignoreForChildren() // a build is cancelled by an interrupt
	os.Exit(m.Run())
}
