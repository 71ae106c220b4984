package launcher

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/weft-mpi/weft/internal/inherited"
	"github.com/weft-mpi/weft/internal/pmi"
	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/internal/testlength"
)

// modeVariable makes the test's own binary a rank, or a launcher that can be killed.
const modeVariable = "LAUNCHER_TEST_MODE"

func TestMain(m *testing.M) {
	Watchdog()
	mode := os.Getenv(modeVariable)
	if mode == "" {
		// or every rank of a test with the race detector sleeps for a second at its end
		os.Setenv("GORACE", "atexit_sleep_ms=0")
		sys.UnignoreForChildren() // tests interrupt them
		testlength.MoreAtOnce()
		os.Exit(m.Run())
	}
	// Whatever goes wrong in a test, its processes end.
	time.AfterFunc(5*time.Minute, func() { os.Exit(99) })
	modes[mode]()
	os.Exit(0)
}

var modes = map[string]func(){
	"agent": func() {
		os.Unsetenv(modeVariable)
		if how := os.Getenv("GARBLE"); how != "" {
			at, err := strconv.Atoi(os.Getenv("AT"))
			check(err)
			garble(how, at)
		}
		check(AgentMain(""))
	},
	"launcher":  beLauncher,
	"wait":      func() { tellPID(); select {} },
	"init-wait": func() { joinPMI(); tellPID(); select {} },
	"barrier":   beBarrier,
	"secret":    beSecret,
	"slack": func() {
		slack, err := os.ReadFile("/proc/self/timerslack_ns")
		check(err)
		os.Stdout.Write(slack)
	},
	"unfinished": func() {
		c := joinPMI()
		if c.Rank() == 0 {
			check(c.Barrier(context.Background()))
		}
	},
	"no-init": func() {
		if os.Getenv("WEFT_RANK") == "1" {
			return
		}
		check(joinPMI().Barrier(context.Background()))
	},
	"abort": func() {
		c := joinPMI()
		if c.Rank() == 1 {
			check(c.Abort(context.Background(), 7))
		}
		select {}
	},
	"violate": func() {
		fd, _ := strconv.Atoi(os.Getenv("PMI_FD"))
		syscall.Write(fd, []byte("cmd=nonsense\n"))
		select {}
	},
	"stop": func() {
		if os.Getenv("WEFT_RANK") == "1" {
			tellPID()
			syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			select {}
		}
		bufio.NewReader(os.Stdin).ReadString('\n')
		os.Exit(3)
	},
	"daemon": func() {
		startFamily()
		bufio.NewReader(os.Stdin).ReadString('\n')
	},
	"stubborn": func() {
		signal.Ignore(syscall.SIGTERM)
		tellPID()
		if os.Getenv("WEFT_RANK") == "0" {
			bufio.NewReader(os.Stdin).ReadString('\n')
			os.Exit(3)
		}
		select {}
	},
	"interrupt": func() {
		got := make(chan os.Signal, 1)
		signal.Notify(got, syscall.SIGINT)
		tellPID()
		fmt.Println("got", <-got)
		os.Exit(5)
	},
	"deaf": func() {
		got := make(chan os.Signal, 4)
		signal.Notify(got, syscall.SIGINT)
		tellPID()
		for s := range got {
			fmt.Println("deaf to", s)
		}
	},
	"family": func() { startFamily(); tellPID(); select {} },
}

// startFamily starts a process in the rank's group that has dropped the environment, so that only the group
// leads to it, and one that has left the group for a session of its own, so that only the environment does.
func startFamily() {
	for _, session := range []bool{false, true} {
		child := exec.Command(os.Args[0])
		child.Env = []string{modeVariable + "=wait"}
		if session {
			child.Env = append(os.Environ(), child.Env...)
		}
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: session}
		child.Stdout = os.Stdout
		check(child.Start())
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(98)
	}
}

func tellPID() { fmt.Println("pid", os.Getpid()) }

func joinPMI() *pmi.Client {
	c, err := pmi.FromEnv()
	check(err)
	if c == nil {
		check(fmt.Errorf("no PMI in the environment"))
	}
	check(c.Init(context.Background()))
	return c
}

func beBarrier() {
	ctx := context.Background()
	c := joinPMI()
	check(c.Put(ctx, fmt.Sprint("k", c.Rank()), fmt.Sprint("v", c.Rank())))
	check(c.Barrier(ctx))
	next := (c.Rank() + 1) % c.Size()
	v, err := c.Get(ctx, fmt.Sprint("k", next))
	check(err)
	if v != fmt.Sprint("v", next) {
		check(fmt.Errorf("rank %d got %q from rank %d", c.Rank(), v, next))
	}
	check(c.Finalize(ctx))
	fmt.Println("through", c.Rank())
}

func beSecret() {
	fd, err := inherited.Take(inherited.Secret)
	check(err)
	secret, err := io.ReadAll(os.NewFile(uintptr(fd), "secret"))
	check(err)
	fmt.Printf("%d %x\n", len(secret), sha256.Sum256(secret))
}

// beLauncher runs the mode that is named by LAUNCHER_TEST_RANKS as two ranks, or as many as
// LAUNCHER_TEST_SIZE says, or instead of this program that which LAUNCHER_TEST_PROGRAM names.
func beLauncher() {
	size, err := strconv.Atoi(cmp.Or(os.Getenv("LAUNCHER_TEST_SIZE"), "2"))
	check(err)
	grace, err := time.ParseDuration(cmp.Or(os.Getenv("LAUNCHER_TEST_GRACE"), "0s"))
	check(err)
	err = Run(context.Background(), Job{
		Apps: []App{{Ranks: size, Program: cmp.Or(os.Getenv("LAUNCHER_TEST_PROGRAM"), os.Args[0])}},
		Env:  []string{modeVariable + "=" + os.Getenv("LAUNCHER_TEST_RANKS")},
		In:   os.Stdin, Out: os.Stdout, Err: os.Stderr, Grace: grace, Sole: true,
	})
	os.Exit(ExitStatus(err))
}

// garble has one of the frames that this process writes as an agent doubled or cut off, after the greeting.
// Those that only say that it lives do not count.
func garble(how string, at int) {
	to := os.Stdout
	r, w, err := os.Pipe()
	check(err)
	os.Stdout = w
	go func() {
		in := bufio.NewReader(r)
		greeting, err := in.ReadBytes('\n')
		check(err)
		to.Write(greeting)
		for {
			head := make([]byte, 4)
			if _, err := io.ReadFull(in, head); err != nil {
				return
			}
			frame := append(head, make([]byte, binary.BigEndian.Uint32(head))...)
			io.ReadFull(in, frame[4:])
			const alive = 10
			switch {
			case frame[4] == alive || at < 0:
			case at > 0:
				at--
			case how == "cut":
				to.Write(frame[:len(frame)-1])
				to.Close()
				return
			default:
				at--
				to.Write(frame)
			}
			to.Write(frame)
		}
	}()
}
