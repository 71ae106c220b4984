package engine

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A sleeper that is woken before it sleeps stays awake, whoever it is that is woken with it. The next one
// sleeps.
func TestSleepers_WokenBeforeTheSleep(t *testing.T) {
	for name, wake := range map[string]func(b *sleepers, s *sleeper){
		"alone":    func(b *sleepers, s *sleeper) { b.wake(s) },
		"with all": func(b *sleepers, _ *sleeper) { b.wakeAll() },
	} {
		t.Run(name, func(t *testing.T) {
			var b sleepers
			s := b.get(nil, false)
			wake(&b, s)
			require.Equal(t, staysAwake, b.enter(s, true))
			b.put(s)
			require.Equal(t, owns, b.enter(b.get(nil, false), true))
		})
	}
}
