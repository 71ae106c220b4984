package remote

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Version is the version of the protocol. Both sides must speak the same.
const Version = 7

// maxBanner is how much a login shell may print before the agent speaks.
const maxBanner = 64 << 10

// A greeting is one line of each side. The launcher's is
//
//	weft-launcher VERSION TOKEN JOB
//
// and the agent answers with its own version and the same token, which nothing else that prints on that host
// knows:
//
//	weft-agent VERSION TOKEN
//
// so what a login shell prints before it is told apart.

func launcherGreeting(token, job string) string {
	return fmt.Sprintf("weft-launcher %d %s %s\n", Version, token, job)
}

// readLauncherGreeting reads the launcher's line and returns what is in it.
func readLauncherGreeting(r *bufio.Reader) (version int, token, job string, err error) {
	line, err := readLine(r, 256)
	if err != nil {
		return 0, "", "", err
	}
	if n, err := fmt.Sscanf(line, "weft-launcher %d %s %s", &version, &token, &job); err != nil || n != 3 {
		return 0, "", "", fmt.Errorf("%w: standard input is not a launcher's: weft agent is started by "+
			"weft run", errProtocol)
	}
	return version, token, job, nil
}

func agentGreeting(token string) string { return fmt.Sprintf("weft-agent %d %s\n", Version, token) }

// skipToGreeting reads up to the agent's line, and returns what came before it and the agent's version.
func skipToGreeting(r *bufio.Reader, token string) (banner string, version int, err error) {
	var before strings.Builder
	for before.Len() < maxBanner {
		line, err := readLine(r, maxBanner)
		// A banner need not end its last line.
		if at := strings.LastIndex(line, "weft-agent "); at >= 0 {
			var got string
			n, _ := fmt.Sscanf(line[at:], "weft-agent %d %s", &version, &got)
			if n == 2 && got == token {
				before.WriteString(line[:at])
				return before.String(), version, nil
			}
		}
		before.WriteString(line)
		if err != nil {
			return before.String(), 0, err
		}
	}
	return before.String(), 0, fmt.Errorf("%w: %d bytes came and no agent's greeting", errProtocol,
		before.Len())
}

// readLine reads a line of at most limit bytes, or what there is before the end.
func readLine(r *bufio.Reader, limit int) (string, error) {
	var line strings.Builder
	for line.Len() < limit {
		c, err := r.ReadByte()
		if err != nil {
			if line.Len() > 0 && errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return line.String(), err
		}
		line.WriteByte(c)
		if c == '\n' {
			return line.String(), nil
		}
	}
	return line.String(), fmt.Errorf("%w: a line of more than %d bytes", errProtocol, limit)
}
