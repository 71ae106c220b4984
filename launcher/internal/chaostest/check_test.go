package chaostest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

// An end is a way for a job to end.
type end struct {
	status int
	cause  string // a regular expression of the line that names it; empty where there is none
}

// check tells all that is wrong with a job's end.
func (p Plan) check(o outcome) (wrong []string) {
	tell := func(text string, args ...any) { wrong = append(wrong, fmt.Sprintf(text, args...)) }
	if o.hung {
		tell("it hung")
	}
	wrong = append(wrong, o.left...)
	if text := p.unstruck(o); text != "" {
		tell("the fault did not strike: %s", text)
	}
	if strings.Contains(o.errs, "chaos: step") || strings.Contains(o.errs, "runtime error") {
		tell("a result was wrong")
	}
	causes := slices.DeleteFunc(causeLine.FindAllString(o.errs, -1), dropped.MatchString)
	switch p.Fault {
	case KillLauncher:
		return wrong
	case FewDescriptors, FewProcesses:
		// How far a job comes is not known. It ends well with all its work done, or says what it lacks.
		if o.status == 0 {
			return append(wrong, p.complete(o)...)
		}
		if !scarce.MatchString(o.errs) {
			tell("it does not say what it lacks")
		}
		if len(causes) == 0 && !refused.MatchString(o.errs) && p.Limit > tooFewForAny {
			tell("the launcher does not say why the job ended")
		}
		return wrong
	}
	ends := p.ends(o)
	for _, e := range ends {
		if o.status != e.status {
			continue
		}
		if e.cause == "" && len(causes) == 0 {
			if o.status == 0 {
				wrong = append(wrong, p.complete(o)...)
			}
			return wrong
		}
		if e.cause != "" && len(causes) == 1 && regexp.MustCompile(e.cause).MatchString(causes[0]) {
			return wrong
		}
	}
	tell("it ended with status %d and the causes %q, and not in one of the ways %v", o.status, causes, ends)
	return wrong
}

// causeLine is a line of the launcher by which a job's failure is explained; other lines are of what goes on.
var causeLine = regexp.MustCompile(`(?m)^weft: (rank \d+ on .*(exited|was killed|ended the job|` +
	`closed its PMI|broke the PMI|is stopped .*, and|has finalized).*|` +
	`ended by .*|the job was .*|.*standard output.*|.*standard error.*)$`)

// dropped is what the launcher says of output that nobody has read.
var dropped = regexp.MustCompile(`\d+ bytes of standard output were dropped`)

var scarce = regexp.MustCompile(`(?i)too many open files|ulimit|resource temporarily unavailable|` +
	`failed to create new OS thread|newosproc|pthread_create failed|` +
	`netpollinit failed|runtime: .* failed with 24|fork|errno=11|no space|cannot allocate|` +
	`loading shared libraries.*Error 24`)

// tooFewForAny is as many processes, or descriptors, as a program written in Go may need before it begins.
const tooFewForAny = 8

// refused is a line of weft about a job that could not be started.
var refused = regexp.MustCompile(`(?im)^weft: .*(ulimit|too many open files|temporarily unavailable|` +
	`no space|cannot allocate)`)

// complete tells what a job that has ended well has not done.
func (p Plan) complete(o outcome) (wrong []string) {
	ranks := p.Ranks
	if p.Fault == Exit {
		ranks-- // the victim exits before it can note that
	}
	if n := len(o.notes["done"]); n != ranks {
		wrong = append(wrong, fmt.Sprintf("%d of %d ranks have come to their end", n, ranks))
	}
	if n := strings.Count(o.out, ": step "); n != p.Ranks*steps && p.Fault != FullDisk {
		wrong = append(wrong, fmt.Sprintf("%d of %d lines came out", n, p.Ranks*steps))
	}
	return wrong
}

// unstruck tells why it is not proved that the fault struck; "" if it is.
func (p Plan) unstruck(o outcome) string {
	switch p.Fault {
	case None, FullDisk, SmallDisk, FewDescriptors, FewProcesses, Timeout:
		return "" // the outcome shows it
	case StalledReader, StalledSignal:
		if !dropped.MatchString(o.errs) {
			return "all output could be written"
		}
		if p.Fault == StalledReader {
			return ""
		}
	case Exit, Kill, Fail, Panic, Goexit, Stop, Memory, Family, Silent, SmallGroup:
		if len(o.notes["struck"]) != 1 {
			return fmt.Sprintf("%d ranks say so", len(o.notes["struck"]))
		}
		if p.Fault == SmallGroup && o.starved == 0 {
			return "the kernel has killed nobody for want of memory"
		}
		return ""
	}
	if !o.struck {
		return "the job had ended"
	}
	return ""
}

// ends are the ways in which the job may end.
func (p Plan) ends(o outcome) []end {
	victim := fmt.Sprintf(`rank %d on \S+ \(pid %s, .*\) `, p.Victim, pidOf(o, p.Victim))
	well := end{}
	switch p.Fault {
	case Exit:
		switch {
		case p.Status != 0:
			return []end{{p.Status, victim + fmt.Sprintf("exited with status %d$", p.Status)}}
		case p.Moment == BeforeInit:
			return []end{{1, victim + "exited with status 0 without Init, for which rank .* waits"}}
		case p.Moment == AfterFinalize:
			return []end{well}
		}
		return []end{{1, victim + "exited with status 0 after Init and without Finalize \\(os\\.Exit in the body of Run\\?\\)$"}}
	case Kill:
		return []end{{128 + int(p.Signal), victim + fmt.Sprintf("was killed by signal %d ", int(p.Signal))}}
	case KillRank:
		return []end{{128 + int(syscall.SIGKILL), victim + "was killed by signal 9 "}}
	case SmallGroup:
		ends := []end{{128 + int(syscall.SIGKILL), victim + "was killed by signal 9 "}}
		if o.starved > 1 {
			// The victim's end took so long that the kernel chose another rank too, whose end came first.
			ends = append(ends, end{128 + int(syscall.SIGKILL), `rank \d+ on .* was killed by signal 9 `})
		}
		return ends
	case Fail:
		return []end{{1, victim + "ended the job with status 1$"}}
	case Panic, Goexit:
		return []end{{2, victim + "ended the job with status 2$"}}
	case Stop:
		return []end{{1, victim + `is stopped \(SIGSTOP\), and rank `}}
	case Memory:
		return []end{{2, victim + "exited with status 2$"}}
	case Silent:
		return []end{{1, victim + "closed its PMI connection without Finalize$"}}
	case Signal, SignalTwice, StalledSignal:
		ends := []end{{128 + int(p.Signal), "ended by " + regexp.QuoteMeta(signalName(p.Signal))}}
		if len(o.notes["pid"]) == 0 {
			ends = append(ends, end{128 + int(p.Signal), ""}) // before the launcher could know of it
		}
		return ends
	case Timeout, StalledReader:
		return []end{{124, "the job was not over after 2s"}}
	case FullDisk, SmallDisk:
		return []end{{1, "no space left on device"}}
	case ClosedReader:
		return []end{{141, ""}}
	}
	return []end{well}
}

// pidOf is the process id that a rank has noted, as a regular expression; any if it has not come so far.
func pidOf(o outcome, rank int) string {
	if pids := o.notes[fmt.Sprintf("pid.%d", rank)]; len(pids) == 1 {
		return fmt.Sprint(pids[0])
	}
	return `\d+`
}

func signalName(s syscall.Signal) string {
	return map[syscall.Signal]string{syscall.SIGINT: "SIGINT", syscall.SIGTERM: "SIGTERM"}[s]
}
