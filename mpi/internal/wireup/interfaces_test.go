package wireup

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func prefixes(list ...string) (out []netip.Prefix) {
	for _, p := range list {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

var machine = []netInterface{
	{"lo", true, prefixes("127.0.0.1/8", "::1/128")},
	{"eth0", true, prefixes("10.1.0.5/16", "fd00::5/64")},
	{"eth1", true, prefixes("10.2.0.5/16")},
	{"eth2", false, prefixes("10.3.0.5/16")},
	{"wlan0", true, nil},
}

func TestInterfaces_AreChosenByNameAndNetwork(t *testing.T) {
	for list, want := range map[string][]string{
		"lo":                        {"127.0.0.1"},
		"eth0":                      {"10.1.0.5"},
		"eth1,eth0":                 {"10.2.0.5", "10.1.0.5"},
		"eth0, eth1":                {"10.1.0.5", "10.2.0.5"},
		"10.0.0.0/8":                {"10.1.0.5", "10.2.0.5"},
		"10.2.0.0/16,eth0":          {"10.2.0.5", "10.1.0.5"},
		"eth1,10.0.0.0/8":           {"10.2.0.5", "10.1.0.5"},
		"fd00::/16":                 {"fd00::5"},
		"eth0,fd00::/64,10.1.0.0/8": {"10.1.0.5", "fd00::5", "10.2.0.5"},
	} {
		addrs, err := choose(list, machine)
		require.NoError(t, err, list)
		var got []string
		for _, a := range addrs {
			got = append(got, a.String())
		}
		require.Equal(t, want, got, list)
	}
}

func TestInterfaces_WhatIsNotThereIsRefusedWithWhatIs(t *testing.T) {
	for list, want := range map[string]string{
		"eth7":           `no interface or network "eth7" is up here; there are: lo 127.0.0.1/8 ::1/128, eth0 10.1.0.5/16 fd00::5/64, eth1 10.2.0.5/16, eth2 10.3.0.5/16 (down), wlan0 (no address)`,
		"eth0,eth2":      `no interface or network "eth2" is up here`,
		"10.3.0.0/16":    `no interface or network "10.3.0.0/16" is up here`,
		"192.168.0.0/16": `no interface or network "192.168.0.0/16" is up here`,
		"wlan0":          `no interface or network "wlan0" is up here`,
		"eth0,":          "an empty name",
		",":              "an empty name",
	} {
		addrs, err := choose(list, machine)
		require.ErrorContains(t, err, want, list)
		require.Nil(t, addrs)
	}
}
