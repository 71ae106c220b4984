package jobtest_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/mpi"
)

// scrape asks for the metrics at an address, with a token or without.
func scrape(network, address, token string) (string, error) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}}}
	r, err := http.NewRequest("GET", "http://rank/metrics", nil)
	if err != nil {
		return "", err
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := client.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, text)
	}
	return string(text), err
}

var metricsBody = body("metrics over a socket", func(_ context.Context, c *mpi.Comm) error {
	if err := sendOne(c, 1-c.Rank(), 5); err != nil {
		return err
	}
	if err := recvOne(c, 1-c.Rank(), 5); err != nil {
		return err
	}
	path := strings.ReplaceAll(os.Getenv("METRICS_PATH"), "{rank}", fmt.Sprint(c.Rank()))
	text, err := scrape("unix", path, "")
	if err != nil {
		return err
	}
	for _, want := range []string{"# TYPE weft_eager_sent_total counter\n", "# TYPE weft_connections gauge\n",
		"weft_connections{rank=\"" + fmt.Sprint(c.Rank()) + "\",host=", "weft_asleep_seconds_total{",
		"weft_channel_sent_total{rank=", ",peer=\"" + fmt.Sprint(1-c.Rank()) + "\",endpoint=\"0\",fabric="} {
		if !strings.Contains(text, want) {
			return fmt.Errorf("%q is missing:\n%s", want, text)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		return fmt.Errorf("the socket: %v, %w", info, err)
	}
	return mpi.Barrier(c)
})

// Every rank serves its counters at a socket of its own, which is gone with it.
func TestMetrics_OverASocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "weft") // a name of a socket is short
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "{rank}")
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "1"), Net: "unix"})
	require.NoError(t, err)
	stale.SetUnlinkOnClose(false)
	stale.Close() // a socket of a process that was killed
	r := launch(t, 2, metricsBody, "WEFT_METRICS=unix:"+path, "METRICS_PATH="+path)
	require.NoError(t, r.Failure, "%s", r.Err)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

var metricsTCPBody = body("metrics over TCP", func(_ context.Context, c *mpi.Comm) error {
	host, port, err := net.SplitHostPort(os.Getenv("WEFT_METRICS"))
	if err != nil {
		return err
	}
	if _, err := scrape("tcp", net.JoinHostPort(host, port), "a token of another job"); err == nil ||
		!strings.Contains(err.Error(), "401") {
		return fmt.Errorf("a wrong token: %w", err)
	}
	text, err := scrape("tcp", net.JoinHostPort(host, port), "0123456789abcdef")
	if err == nil && !strings.Contains(text, "weft_connections{") {
		err = fmt.Errorf("no metrics: %s", text)
	}
	return err
})

// Over TCP callers need a token.
func TestMetrics_OverTCP(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("0123456789abcdef\n"), 0o600))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	l.Close()
	r := launch(t, 1, metricsTCPBody, "WEFT_METRICS="+address, "WEFT_METRICS_TOKEN_FILE="+token)
	require.NoError(t, r.Failure, "%s", r.Err)
}

// What cannot be served is refused at Init, with a reason.
func TestMetrics_RefusedSettings(t *testing.T) {
	dir := t.TempDir()
	open, short := filepath.Join(dir, "open"), filepath.Join(dir, "short")
	require.NoError(t, os.WriteFile(open, []byte("0123456789abcdef\n"), 0o644))
	require.NoError(t, os.WriteFile(short, []byte("1234\n"), 0o600))
	for _, c := range []struct {
		settings []string
		says     string
	}{
		{[]string{"WEFT_METRICS=unix:/tmp/one-for-all"}, "each rank has a socket of its own"},
		{[]string{"WEFT_METRICS=9100"}, "neither unix:PATH nor HOST:PORT"},
		{[]string{"WEFT_METRICS=127.0.0.1:65535"}, "with room for all ranks"},
		{[]string{"WEFT_METRICS=127.0.0.1:0"}, "WEFT_METRICS_TOKEN_FILE is not set"},
		{[]string{"WEFT_METRICS=127.0.0.1:0", "WEFT_METRICS_TOKEN_FILE=" + open}, "chmod 600"},
		{[]string{"WEFT_METRICS=127.0.0.1:0", "WEFT_METRICS_TOKEN_FILE=" + short}, "16 to 1024 bytes"},
		{[]string{"WEFT_METRICS=unix:" + dir + "/none/{rank}"}, "no such file"},
	} {
		r := launch(t, 2, metricsBody, c.settings...)
		require.Error(t, r.Failure)
		require.Contains(t, r.Err, c.says)
	}
}
