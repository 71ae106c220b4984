package launcher

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// DefaultStarter is the command that starts agents by default. It must not prompt, because its standard input
// is the agent's.
const DefaultStarter = "ssh -T -o BatchMode=yes {host}"

// shellCharacters are special in a shell, which a starter may use.
const shellCharacters = "'\"`$;&|<>()\\*?{}!"

// ParseStarter parses the value of --starter: a command, in which {host} stands for the host's name. The
// agent's command is appended to it. Words that contain spaces must be quoted.
//
// A command with {hosts} in it, for the names of all hosts separated by ',', starts all agents in one call,
// one on each host and in this order. Each agent has its number in SLURM_PROCID. The command passes its
// standard input to all of them, and interleaves their lines. {count} is the number of hosts.
func ParseStarter(text string) ([]string, error) {
	var words []string
	var word strings.Builder
	inWord, quote := false, rune(0)
	for _, c := range text {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(c)
		case c == '\'' || c == '"':
			quote, inWord = c, true
		case c == ' ' || c == '\t' || c == '\n':
			if inWord {
				words = append(words, word.String())
			}
			word.Reset()
			inWord = false
		default:
			word.WriteRune(c)
			inWord = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("%q: a %c without a closing one", text, quote)
	}
	if inWord {
		words = append(words, word.String())
	}
	switch {
	case len(words) == 0:
		return nil, fmt.Errorf("an empty command")
	case !strings.Contains(text, "{host}") && !strings.Contains(text, "{hosts}"):
		return nil, fmt.Errorf("%q names no {host}: without it every agent would start on the same one", text)
	}
	return words, nil
}

// startsAll reports whether one call of the starter starts the agents of all hosts.
func (j *Job) startsAll() bool {
	return slices.ContainsFunc(j.Starter, func(word string) bool { return strings.Contains(word, "{hosts}") })
}

// agentCommand returns the command that starts the agent of a host, or the agents of all.
func (j *Job) agentCommand(hosts ...Host) ([]string, error) {
	template := j.Starter
	if template == nil {
		template, _ = ParseStarter(DefaultStarter)
	}
	var names []string
	for _, h := range hosts {
		names = append(names, h.Name)
	}
	fill := strings.NewReplacer("{host}", names[0], "{hosts}", strings.Join(names, ","),
		"{count}", strconv.Itoa(len(names)))
	file := j.AgentPath
	if file == "" {
		var err error
		if file, err = os.Executable(); err != nil {
			return nil, fmt.Errorf("the path of this program: %w", err)
		}
	}
	special := func(r rune) bool { return r <= ' ' || strings.ContainsRune(shellCharacters, r) }
	if strings.ContainsFunc(file, special) {
		return nil, requestErrorf("%q: a shell on the other host could not take this path; "+
			"--agent-path names another", file)
	}
	var command []string
	for _, word := range template {
		command = append(command, fill.Replace(word))
	}
	command = append(command, file, "agent")
	if j.startsAll() {
		command = append(command, "--number-in", "SLURM_PROCID")
	}
	return command, nil
}
