package setting

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUnknown(t *testing.T) {
	require.Empty(t, Unknown([]string{"PATH=/bin", "WEFT_LANES=2", "WEFT_RANK=0", "WEFT_JOB=x", "WEFT_INHERITED=x",
		"WEFT_TEST_KIND=1", "XWEFT_LANE=1", "WEFT_LANE="}))
	require.Equal(t, []string{
		`"WEFT_LANE" in the environment is no setting; did you mean WEFT_LANES? (weft info --settings lists all)`,
		`"WEFT_FABIRC" in the environment is no setting; did you mean WEFT_FABRIC? (weft info --settings lists all)`,
		`"WEFT_QUUX" in the environment is no setting (weft info --settings lists all)`,
		`"WEFT_\x1b[2J" in the environment is no setting (weft info --settings lists all)`,
	}, Unknown([]string{"WEFT_LANE=2", "WEFT_FABIRC=shm", "WEFT_LANE=3", "WEFT_QUUX=1", "WEFT_\x1b[2J=1"}))
}
