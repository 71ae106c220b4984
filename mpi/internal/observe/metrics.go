package observe

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/mpi/internal/engine"
)

const (
	// rankWord stands for the rank's number in the path of WEFT_METRICS.
	rankWord = "{rank}"
	// Limits of a token.
	minToken, maxToken = 16, 1024
	// metricsTimeout bounds a request, and the wait for the one under way at the end.
	metricsTimeout = 10 * time.Second
)

// metricsServer serves a rank's counters in Prometheus' text format, to its own user or to clients with a
// token.
type metricsServer struct {
	server   *http.Server
	listener net.Listener
}

// metricsAddress returns the address in WEFT_METRICS: a path, or an address for TCP.
func metricsAddress(set setting.Value, rank, size int) (path, address string, err error) {
	text := set.String()
	if path, ok := strings.CutPrefix(text, "unix:"); ok {
		if path == "" || size > 1 && !strings.Contains(path, rankWord) {
			return "", "", fmt.Errorf("%s=%q: a path with %s in it, for each rank has a socket of its own, "+
				"such as unix:/run/user/1000/job-%s", set.Name, text, rankWord, rankWord)
		}
		return strings.ReplaceAll(path, rankWord, strconv.Itoa(rank)), "", nil
	}
	host, port, err := net.SplitHostPort(text)
	number, wrong := strconv.ParseUint(port, 10, 16)
	if err != nil || wrong != nil || number > 0 && number+uint64(rank) > 65535 {
		return "", "", fmt.Errorf("%s=%q: neither unix:PATH nor HOST:PORT with room for all ranks", set.Name,
			text)
	}
	if number > 0 {
		number += uint64(rank)
	}
	return "", net.JoinHostPort(host, strconv.FormatUint(number, 10)), nil
}

// readToken reads the token that callers over TCP must have.
func readToken(file setting.Value) (token [sha256.Size]byte, err error) {
	name := file.String()
	if name == "" {
		return token, fmt.Errorf("%s is not set: over TCP callers need a token, which is in that file",
			file.Name)
	}
	f, err := os.Open(name)
	if err != nil {
		return token, fmt.Errorf("%s: %w", file.Name, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && (!info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0) {
		err = fmt.Errorf("%s: it must be a file that nobody but its owner can read: chmod 600", name)
	}
	if err != nil {
		return token, fmt.Errorf("%s: %w", file.Name, err)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxToken+2))
	if err != nil {
		return token, fmt.Errorf("%s: %w", file.Name, err)
	}
	word := strings.TrimSpace(string(text))
	if len(word) < minToken || len(word) > maxToken || strings.ContainsAny(word, " \t\r\n") {
		return token, fmt.Errorf("%s: %s: a token is one word of %d to %d bytes", file.Name, name, minToken,
			maxToken)
	}
	return sha256.Sum256([]byte(word)), nil
}

// startMetrics starts to serve the counters of a rank; nil without the setting.
func startMetrics(wanted, tokenFile setting.Value, h *engine.Hub, log *slog.Logger) (*metricsServer,
	error) {
	if wanted.String() == "" {
		return nil, nil
	}
	path, address, err := metricsAddress(wanted, h.Rank(), h.Size())
	if err != nil {
		return nil, err
	}
	m := &metricsServer{}
	var token [sha256.Size]byte
	if path != "" {
		m.listener, err = listenOwn(path)
	} else if token, err = readToken(tokenFile); err == nil {
		m.listener, err = net.Listen("tcp", address)
	}
	if err != nil {
		return nil, fmt.Errorf("%s=%q: %w", wanted.Name, wanted, err)
	}
	host, _ := os.Hostname()
	labels := fmt.Sprintf(`rank="%d",host=%q`, h.Rank(), host)
	m.server = &http.Server{ReadTimeout: metricsTimeout, WriteTimeout: metricsTimeout,
		MaxHeaderBytes: 1 << 14, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			word, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
			given := sha256.Sum256([]byte(word))
			switch {
			case path == "" && subtle.ConstantTimeCompare(given[:], token[:]) != 1:
				w.Header().Set("WWW-Authenticate", "Bearer")
				http.Error(w, "the token is missing, or another one", http.StatusUnauthorized)
			case r.URL.Path != "/metrics":
				http.NotFound(w, r)
			default:
				w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
				io.WriteString(w, metricsText(h.Stats(), labels))
			}
		})}
	go m.server.Serve(m.listener)
	log.Debug("metrics are served", "address", m.listener.Addr().String())
	return m, nil
}

// close stops the server.
func (m *metricsServer) close() {
	if m != nil {
		m.server.Close()
	}
}

// listenOwn listens at a path of the file system, for this process's user alone. It replaces a socket without
// a listener.
func listenOwn(path string) (net.Listener, error) {
	l, err := net.Listen("unix", path)
	if errors.Is(err, syscall.EADDRINUSE) {
		if c, refused := net.Dial("unix", path); refused == nil {
			c.Close()
			return nil, fmt.Errorf("another process listens there: %w", err)
		} else if !errors.Is(refused, syscall.ECONNREFUSED) {
			return nil, err
		}
		os.Remove(path)
		l, err = net.Listen("unix", path)
	}
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, err
	}
	return ownListener{l.(*net.UnixListener)}, nil
}

// ownListener accepts callers of this process's user, and rejects others.
type ownListener struct{ *net.UnixListener }

func (l ownListener) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if _, uid, err := sys.PeerOf(c); err == nil && uid == os.Getuid() {
			return c, nil
		}
		c.Close()
	}
}

// gauges are the counters that can fall.
var gauges = map[string]bool{"Connections": true, "Registered": true, "Collective": true, "Kept": true,
	"Phase": true, "Lanes": true, "Holes": true, "MaxHoles": true, "LongestHole": true,
	"HandlerCore": true, "HandlerBulk": true}

// named are the fields that become labels.
var named = map[string]bool{"Peer": true, "Endpoint": true, "Number": true}

// metricsText returns the counters in Prometheus' text format, named by the fields of mpi.Stats.
func metricsText(st engine.Stats, labels string) string {
	t := &metricsTable{values: map[string][]string{}}
	t.add("weft_", reflect.ValueOf(st), labels)
	for i := range st.Endpoints {
		e := &st.Endpoints[i]
		t.add("weft_endpoint_", reflect.ValueOf(*e), fmt.Sprintf(`%s,endpoint="%d"`, labels, e.Number))
	}
	for i := range st.Channels {
		c := &st.Channels[i]
		own := fmt.Sprintf(`%s,peer="%d",endpoint="%d",fabric=%q`, labels, c.Peer, c.Endpoint, c.Fabric)
		t.add("weft_channel_", reflect.ValueOf(*c), own)
		t.add("weft_channel_lanes_", reflect.ValueOf(c.Lanes), own)
	}
	var b strings.Builder
	for _, name := range t.names {
		b.WriteString(name)
		for _, v := range t.values[name] {
			b.WriteString(v)
		}
	}
	return b.String()
}

// metricsTable groups the values by metric, as the format requires.
type metricsTable struct {
	names  []string            // the beginning of each metric, in order
	values map[string][]string // by this beginning
}

// add adds the numbers of a struct, including embedded ones.
func (t *metricsTable) add(prefix string, v reflect.Value, labels string) {
	for _, field := range reflect.VisibleFields(v.Type()) {
		f := v.FieldByIndex(field.Index)
		if named[field.Name] {
			continue
		}
		var value string
		kind, end := "counter", "_total"
		if gauges[field.Name] {
			kind, end = "gauge", ""
		}
		switch {
		case f.Type() == reflect.TypeFor[time.Duration]():
			value = strconv.FormatFloat(time.Duration(f.Int()).Seconds(), 'g', -1, 64)
			end = "_seconds" + end
		case f.Kind() == reflect.Bool:
			value = "0"
			if f.Bool() {
				value = "1"
			}
		case f.CanInt():
			value = strconv.FormatInt(f.Int(), 10)
		case f.CanUint():
			value = strconv.FormatUint(f.Uint(), 10)
		default:
			continue
		}
		name := prefix + snake(field.Name) + end
		head := fmt.Sprintf("# HELP %s %s of mpi.%s\n# TYPE %s %s\n", name, field.Name, v.Type().Name(),
			name, kind)
		if t.values[head] == nil {
			t.names = append(t.names, head)
		}
		t.values[head] = append(t.values[head], fmt.Sprintf("%s{%s} %s\n", name, labels, value))
	}
}

// snake returns a name in lower case, with _ between its words.
func snake(name string) string {
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
