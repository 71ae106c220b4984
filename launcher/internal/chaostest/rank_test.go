package chaostest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/weft-mpi/weft/mpi"
)

// The variables by which the harness tells a rank its plan, and where to leave notes.
const (
	seedVariable  = "CHAOS_SEED"
	notesVariable = "CHAOS_NOTES"
)

// lifetime bounds the life of every process of a job, should all else fail.
const lifetime = 10 * time.Minute

// Play is the life of a rank, and returns where this process is none.
func Play() {
	text, is := os.LookupEnv(seedVariable)
	if !is {
		return
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	rank, err2 := strconv.Atoi(os.Getenv("WEFT_RANK"))
	if err := errors.Join(err, err2); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(90)
	}
	time.AfterFunc(lifetime, func() { os.Exit(91) })
	v := victim{plan: New(seed), rank: rank, notes: os.Getenv(notesVariable)}
	v.pmi, _ = os.Readlink("/proc/self/fd/" + os.Getenv("PMI_FD"))
	v.note("pid", os.Getpid())
	if v.plan.stubborn() {
		signal.Ignore(syscall.SIGINT, syscall.SIGTERM)
	}
	v.live()
	v.note("done", os.Getpid())
	os.Exit(0)
}

// A victim is a rank of a plan, which the fault strikes or does not.
type victim struct {
	plan  Plan
	rank  int
	notes string
	pmi   string // the socket of the PMI connection, as the kernel names it
}

// note leaves a fact for the harness.
func (v *victim) note(name string, pid int) {
	file := filepath.Join(v.notes, fmt.Sprintf("%s.%d.%d", name, v.rank, pid))
	if err := os.WriteFile(file, []byte(strconv.Itoa(pid)), 0o666); err != nil {
		fmt.Fprintln(os.Stderr, "chaos: note:", err)
	}
}

// goOn is the note by which the harness lets a rank go on that waits for it.
const goOn = "go on"

func (v *victim) told(what string) bool {
	_, err := os.Stat(filepath.Join(v.notes, what))
	return err == nil
}

// errBody is what the body of Fail returns.
var errBody = errors.New("chaos: the body fails")

func (v *victim) live() {
	if v.plan.Moment == AtRandom && v.rank == v.plan.Victim {
		time.AfterFunc(v.plan.After, func() { v.strike() })
	}
	v.at(BeforeInit)
	err := mpi.Run(context.Background(), v.work)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	v.at(AfterFinalize)
}

// work exchanges messages of all sizes with the neighbors, and sums up. Each is on a communicator of its own,
// and so on another endpoint where there are several.
func (v *victim) work(_ context.Context, world *mpi.Comm) error {
	v.noteSockets()
	exchange, err := world.Dup()
	if err != nil {
		return err
	}
	next, prev := (world.Rank()+1)%world.Size(), (world.Rank()+world.Size()-1)%world.Size()
	for step := 0; step < steps || v.plan.endless(); step++ {
		if step == v.plan.Step {
			if err := v.at(AtStep); err != nil {
				return err
			}
		}
		n := 1 << (step * 7 % 18)
		out, in := make([]byte, n), make([]byte, n)
		for i := range out {
			out[i] = byte(world.Rank() + step + i)
		}
		if _, err := mpi.Sendrecv(exchange, out, next, 1, in, prev, 1); err != nil {
			return err
		}
		for i := range in {
			if in[i] != byte(prev+step+i) {
				return fmt.Errorf("chaos: step %d: byte %d of %d is %d", step, i, n, in[i])
			}
		}
		sum := make([]int, 1)
		if err := mpi.Allreduce(world, []int{step + world.Rank()}, sum, mpi.Sum[int]()); err != nil {
			return err
		}
		if want := step*world.Size() + world.Size()*(world.Size()-1)/2; sum[0] != want {
			return fmt.Errorf("chaos: step %d: the sum is %d, not %d", step, sum[0], want)
		}
		fmt.Printf("rank %d of %d: step %d\n", world.Rank(), world.Size(), step)
		switch {
		case v.plan.flooding():
			fmt.Println(strings.Repeat("x", 20_000))
		case v.plan.endless():
			time.Sleep(time.Millisecond)
		}
	}
	if v.plan.Moment == InFinalize && v.rank == v.plan.Victim {
		time.Sleep(100 * time.Millisecond) // the others come to Finalize meanwhile
		return v.at(InFinalize)
	}
	return nil
}

// at strikes if this is the victim and its moment.
func (v *victim) at(m Moment) error {
	if v.rank != v.plan.Victim || m != v.plan.Moment {
		return nil
	}
	return v.strike()
}

// strike brings the fault about.
func (v *victim) strike() error {
	switch v.plan.Fault {
	case Exit, Kill, Fail, Panic, Goexit, Stop, Memory, Family, Silent, SmallGroup:
		v.note("struck", os.Getpid())
	}
	switch v.plan.Fault {
	case Exit:
		os.Exit(v.plan.Status)
	case Kill:
		syscall.Kill(os.Getpid(), v.plan.Signal)
		select {}
	case Fail:
		return errBody
	case Panic:
		panic("chaos: the body panics")
	case Goexit:
		runtime.Goexit()
	case Stop:
		syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		time.Sleep(lifetime) // another thread may take the signal a little later
	case Memory:
		limitAddresses()
		exhaust()
	case SmallGroup:
		os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0) // else the launcher may be chosen
		exhaust()
	case Family:
		v.family()
	case KillWatchdog:
		v.note("waits", os.Getpid())
		for !v.told(goOn) {
			time.Sleep(time.Millisecond)
		}
	case Silent:
		v.hangUp()
		time.Sleep(lifetime)
	}
	return nil
}

// hangUp ends the PMI connection, under whichever number the descriptor lies by now. The runtime's poller
// holds it: shutdown is what the launcher sees of a close.
func (v *victim) hangUp() {
	links, _ := filepath.Glob("/proc/self/fd/*")
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && to == v.pmi {
			fd, _ := strconv.Atoi(filepath.Base(link))
			syscall.Shutdown(fd, syscall.SHUT_RDWR)
		}
	}
}

func limitAddresses() {
	var now syscall.Rlimit
	syscall.Getrlimit(syscall.RLIMIT_AS, &now)
	now.Cur = addressSpace() + 32<<20
	syscall.Setrlimit(syscall.RLIMIT_AS, &now)
}

// exhaust takes memory until there is none.
func exhaust() {
	var all [][]byte
	for {
		block := make([]byte, 1<<20)
		for i := 0; i < len(block); i += 4096 {
			block[i] = 1
		}
		all = append(all, block)
		runtime.KeepAlive(all)
	}
}

// addressSpace is how many bytes of addresses this process uses.
func addressSpace() uint64 {
	text, _ := os.ReadFile("/proc/self/statm")
	var pages uint64
	fmt.Sscan(string(text), &pages)
	return pages * uint64(os.Getpagesize())
}

// family starts processes that would outlive the rank: in its group, in a session of their own, without its
// environment, and one that floods its output.
func (v *victim) family() {
	bare := []string{"PATH=" + os.Getenv("PATH")}
	for _, child := range []struct {
		command []string
		env     []string
		session bool
		output  *os.File
	}{
		{[]string{"sleep", "300"}, os.Environ(), false, os.Stdout},
		{[]string{"sleep", "300"}, os.Environ(), true, os.Stdout},
		{[]string{"sleep", "300"}, bare, true, nil},
		{[]string{"yes"}, bare, true, os.Stderr},
	} {
		cmd := exec.Command(child.command[0], child.command[1:]...)
		cmd.Env, cmd.Stdout = child.env, child.output
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: child.session}
		if err := cmd.Start(); err != nil {
			fmt.Fprintln(os.Stderr, "chaos: family:", err)
			os.Exit(92)
		}
		v.note("child", cmd.Process.Pid)
	}
}
