package launcher

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseHosts(t *testing.T) {
	for text, want := range map[string][]Host{
		"a":                     {{"a", 0}},
		"a:4, b":                {{"a", 4}, {"b", 0}},
		"a:1,b:2,a:3":           {{"a", 4}, {"b", 2}},
		"user@a:2":              {{"user@a", 2}},
		"fe80::1,[fe80::2]:8":   {{"fe80::1", 0}, {"fe80::2", 8}},
		"node-1.cluster.org:16": {{"node-1.cluster.org", 16}},
	} {
		hosts, err := ParseHosts(text)
		require.NoError(t, err, text)
		require.Equal(t, want, hosts, text)
	}
	for _, text := range []string{"", "a,", ":4", "a:", "a:x", "a:-1", "a:0", "-a", "a b", "a;b", "$(x)",
		"a:1:b:1", "user@a:b:c", "[::1", "[::1]4", "[::1]:", "[::1]:0"} {
		_, err := ParseHosts(text)
		require.Error(t, err, text)
	}
}

func TestParseHostfile(t *testing.T) {
	hosts, err := ParseHostfile(strings.NewReader("# all\n\na slots=2 max_slots=3\r\n\tb:4 user=me\nc\n"),
		"hosts")
	require.NoError(t, err)
	require.Equal(t, []Host{{"a", 2}, {"me@b", 4}, {"c", 0}}, hosts)
	hosts, err = ParseHostfile(strings.NewReader("\ufeffa:2\nb\n"), "hosts")
	require.NoError(t, err)
	require.Equal(t, []Host{{"a", 2}, {"b", 0}}, hosts)
	for text, want := range map[string]string{
		"\ufeffa rack=4":     `hosts:1:3: "rack=4": slots=N, max_slots=N or user=NAME can stand after a host`,
		"a\n\ufeffb":         `hosts:2:1: "\ufeffb" is no host's name`,
		"":                   "hosts: no host in it",
		"a\n  b slots=none":  `hosts:2:5: "none" is not a number of slots from 1 to 65536`,
		"a\n\nb rack=4":      `hosts:3:3: "rack=4": slots=N, max_slots=N or user=NAME can stand after a host`,
		"a:4\n-oProxy=x:2\n": `hosts:2:1: "-oProxy=x:2" is no host's name`,
		"a user=-oProxy=x":   `hosts:1:3: "-oProxy=x" is no user's name`,
		"a:1,b:1":            `hosts:1:1: "a:1,b:1": a line names one host`,
		"a:1:b:1":            `hosts:1:1: "a:1:b:1" is no IPv6 address, and a name has no ':' but that before its slots`,
		"a user=0\"0":        `hosts:1:3: "0\"0" is no user's name`,
	} {
		_, err := ParseHostfile(strings.NewReader(text), "hosts")
		require.EqualError(t, err, want)
	}
}

// No hostfile makes the parser panic, and no host of it could be taken for an option or a command by what
// starts agents.
func FuzzParseHostfile(f *testing.F) {
	f.Add("a slots=2\nb:3 # three\n")
	f.Add("[::1]:2 user=x max_slots=4\n")
	f.Fuzz(func(t *testing.T, text string) {
		hosts, err := ParseHostfile(strings.NewReader(text), "hosts")
		if err != nil {
			return
		}
		for _, h := range hosts {
			if h.Slots < 0 || h.Name == "" || h.Name[0] == '-' || strings.ContainsAny(h.Name, " \t;|&$`'\"") {
				t.Fatalf("%q gives %+v", text, h)
			}
		}
	})
}

func TestParseStarter(t *testing.T) {
	words, err := ParseStarter(`kubectl exec -i 'my {host}' -c "a b" --`)
	require.NoError(t, err)
	require.Equal(t, []string{"kubectl", "exec", "-i", "my {host}", "-c", "a b", "--"}, words)
	for _, text := range []string{"", "ssh", "'{host}"} {
		_, err := ParseStarter(text)
		require.Error(t, err, text)
	}
}

// The value of PMI_process_mapping tells C programs which ranks share a host.
func TestProcessMapping(t *testing.T) {
	a, b := &node{ranks: []int{0, 1, 4}}, &node{ranks: []int{2, 3}}
	h := nodes{all: []*node{a, b}}
	h.locate()
	require.Equal(t, "(vector,(0,2,2),(0,1,1))", h.processMapping())
}

func TestCrowded(t *testing.T) {
	hosts := []Host{{"a", 1}, {"b", 2}, {"c", 1}}
	require.Empty(t, crowded(hosts, []int{0, 1, 1, 2}))
	require.Equal(t, "host b", crowded(hosts, []int{0, 1, 1, 1, 2}))
	require.Equal(t, "host a and 1 more", crowded(hosts, []int{0, 0, 2, 2}))
}
