package launcher

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher/internal/remote"
)

// An agent that does not start is reported with what to do about it.
func TestAgentThatDoesNotStart(t *testing.T) {
	const install = "; install weft there as /opt/weft, or name its path there with --agent-path"
	for script, want := range map[string]string{
		"echo sh: no route to host >&2":          " (sh: no route to host); try: sh -c SCRIPT true",
		"echo 'sh: 1: /opt/weft: not found' >&2": " (sh: 1: /opt/weft: not found)" + install,
		"cat >/dev/null & exit":                  install,
		"echo Host key verification failed. >&2": " (sh: Host key verification failed.); run once: ssh far true, and " +
			"accept its key",
		"echo 'far: Permission denied (publickey).' >&2": " (sh: far: Permission denied (publickey).); it has to " +
			"take your key without asking: ssh-copy-id far, or write USER@HOST for another user",
	} {
		command := []string{"sh", "-c", script, "/opt/weft", "agent"}
		_, err := remote.Connect(t.Context(), "far", "job", command)
		command[2] = "SCRIPT"
		require.EqualError(t, advise(err, command), "host far: the connection to its agent has ended"+want)
	}
}

// An agent that is slow to start is named while the launcher waits for it.
func TestAgentThatIsSlowToStart(t *testing.T) {
	defer func(old time.Duration) { connectQuiet = old }(connectQuiet)
	connectQuiet = time.Millisecond
	notices := make(chan string, 1)
	spec := Job{Starter: []string{"sh", "-c", "read line; read line; echo {host}"}, AgentPath: "/opt/weft"}
	c := &connector{spec: &spec, tell: func(string, ...any) {},
		notice: func(text string, args ...any) { notices <- fmt.Sprintf(text, args...) }}
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		_, err := c.connect(ctx, []Host{{"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}, {"e", 1}, {"f", 1}})
		ended <- err
	}()
	require.Equal(t, "waiting for weft to start on a, b, c, d, and 2 more, for up to 30s", <-notices)
	enough := errors.New("enough")
	cancel(enough)
	require.ErrorIs(t, <-ended, enough)
}
