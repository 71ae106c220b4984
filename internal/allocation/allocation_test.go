package allocation

import (
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"
)

// recorded is an environment, and the files that it names.
func recorded(environment, files map[string]string) Source {
	return Source{
		Getenv: func(name string) string { return environment[name] },
		ReadFile: func(name string) ([]byte, error) {
			if text, ok := files[name]; ok {
				return []byte(text), nil
			}
			return nil, fs.ErrNotExist
		},
	}
}

type vars = map[string]string

func TestDetect(t *testing.T) {
	for name, c := range map[string]struct {
		environment, files vars
		engine             string
		hosts              []Host
	}{
		"none": {environment: vars{"HOME": "/root"}},
		"Slurm": {
			environment: vars{"SLURM_JOB_NODELIST": "n[1-3],login", "SLURM_TASKS_PER_NODE": "2(x3),1"},
			engine:      "Slurm", hosts: []Host{{"n1", 2}, {"n2", 2}, {"n3", 2}, {"login", 1}},
		},
		"Slurm without tasks": {
			environment: vars{"SLURM_JOB_NODELIST": "n1", "SLURM_JOB_CPUS_PER_NODE": "48"},
			engine:      "Slurm", hosts: []Host{{"n1", 48}},
		},
		"Grid Engine": {
			environment: vars{"PE_HOSTFILE": "/spool/hosts"},
			files:       vars{"/spool/hosts": "a.example 4 all.q@a <NULL>\nb.example 2 all.q@b UNDEFINED\n\na.example 1 long.q@a <NULL>\n"},
			engine:      "Grid Engine", hosts: []Host{{"a.example", 5}, {"b.example", 2}},
		},
		"LSF": {
			environment: vars{"LSB_MCPU_HOSTS": "hostA 4 hostB 8 "},
			engine:      "LSF", hosts: []Host{{"hostA", 4}, {"hostB", 8}},
		},
		"PBS": {
			environment: vars{"PBS_NODEFILE": "/var/nodes"},
			files:       vars{"/var/nodes": "n1\nn1\nn2\nn1\n"},
			engine:      "PBS", hosts: []Host{{"n1", 3}, {"n2", 1}},
		},
	} {
		a, err := Detect(recorded(c.environment, c.files))
		require.NoError(t, err, name)
		if c.engine == "" {
			require.Nil(t, a, name)
			continue
		}
		require.Equal(t, c.engine, a.Engine, name)
		require.Equal(t, c.hosts, a.Hosts, name)
		require.NotEmpty(t, a.Why, name)
	}
}

func TestDetectNamesWhatIsWrong(t *testing.T) {
	for want, c := range map[string]struct{ environment, files vars }{
		"Slurm: SLURM_JOB_NODELIST has 2 nodes, and SLURM_TASKS_PER_NODE tells of 3": {
			environment: vars{"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "1(x3)"}},
		"Slurm: SLURM_JOB_NODELIST: node list \"n[1\": no ']'": {environment: vars{"SLURM_JOB_NODELIST": "n[1"}},
		`SLURM_TASKS_PER_NODE: "2(x" is no number`:             {environment: vars{"SLURM_JOB_NODELIST": "n", "SLURM_TASKS_PER_NODE": "2(x"}},
		"numbers for more than 65536 nodes":                    {environment: vars{"SLURM_JOB_NODELIST": "n", "SLURM_TASKS_PER_NODE": "2(x99999999)"}},
		`SLURM_JOB_CPUS_PER_NODE: "" is no number of ranks`:    {environment: vars{"SLURM_JOB_NODELIST": "n"}},
		"Grid Engine: PE_HOSTFILE: file does not exist":        {environment: vars{"PE_HOSTFILE": "/gone"}},
		`PE_HOSTFILE, line 2: no number of slots after "b"`:    {vars{"PE_HOSTFILE": "f"}, vars{"f": "a 1 q\nb\n"}},
		`line 1: host "a": "x" is no number of ranks`:          {vars{"PE_HOSTFILE": "f"}, vars{"f": "a x q\n"}},
		"PE_HOSTFILE: no host in it":                           {vars{"PE_HOSTFILE": "f"}, vars{"f": "\n"}},
		"LSF: LSB_MCPU_HOSTS: 3 words are no pairs":            {environment: vars{"LSB_MCPU_HOSTS": "a 1 b"}},
		`"-oProxyCommand=x" is no host's name`:                 {vars{"PBS_NODEFILE": "f"}, vars{"f": "-oProxyCommand=x\n"}},
		"two batch systems, Slurm (SLURM_JOB_NODELIST, SLURM_TASKS_PER_NODE) and PBS": {
			environment: vars{"SLURM_JOB_NODELIST": "n", "SLURM_TASKS_PER_NODE": "1", "PBS_NODEFILE": "f"}},
	} {
		_, err := Detect(recorded(c.environment, c.files))
		require.ErrorContains(t, err, want)
	}
}

func TestParseNodeList(t *testing.T) {
	for text, want := range map[string][]string{
		"n":                   {"n"},
		"a,b":                 {"a", "b"},
		"lx[15,18,32-33]":     {"lx15", "lx18", "lx32", "lx33"},
		"n[008-011]x,m":       {"n008x", "n009x", "n010x", "n011x", "m"},
		"r[0-1]_b[0-1]":       {"r0_b0", "r0_b1", "r1_b0", "r1_b1"},
		"a[1],b[2-2].example": {"a1", "b2.example"},
	} {
		got, err := ParseNodeList(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{
		"", ",", "a,", "a,,b", "a[", "a]", "a[]", "a[[1]]", "a[1-]", "a[-1]", "a[3-1]", "a[x]",
		"a[0-99999999]",
		"a[0-65535][0-65535]", "a[1],a b", "a;b", "-a", "a[1,]",
	} {
		_, err := ParseNodeList(text)
		require.Error(t, err, "%q", text)
	}
}

func FuzzParseNodeList(f *testing.F) {
	for _, text := range []string{"lx[15,18,32-33]", "rack[0-3]_blade[00-41]", "a,b[1", "[0-9][0-9][0-9]"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		names, err := ParseNodeList(text)
		if err != nil {
			return
		}
		require.NotEmpty(t, names)
		require.LessOrEqual(t, len(names), maxHosts)
		for _, name := range names {
			require.NoError(t, checkName(name))
		}
	})
}
