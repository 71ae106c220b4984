package sys

import "syscall"

// A Child describes how to start a process.
type Child struct {
	Path      string
	Args, Env []string
	Dir       string
	Files     []uintptr // what the process gets as descriptors 0, 1, 2 …

	// DiesWithThread kills the process when the thread that starts it ends, and so at the latest when this
	// process does. The starting goroutine must be locked to its thread for as long as the process is to
	// live.
	DiesWithThread bool
	// OwnGroup makes the process the leader of a process group of its own, OwnSession of a session too.
	OwnGroup, OwnSession bool
	// Mark is a number by which the process and all its descendants can be told: see Marked. 0: none.
	Mark uint64
}

// Start starts the process and returns its id. The caller must Reap it.
func (c *Child) Start() (pid int, err error) {
	attr := &syscall.SysProcAttr{Setpgid: c.OwnGroup, Setsid: c.OwnSession}
	if err := c.tie(attr); err != nil {
		return 0, err
	}
	defer c.mark()()
	return syscall.ForkExec(c.Path, c.Args, &syscall.ProcAttr{Dir: c.Dir, Env: c.Env, Files: c.Files,
		Sys: attr})
}

// Inheritable reports whether a descriptor is open, and inherited by the programs that this process starts.
func Inheritable(fd int) bool {
	flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFD, 0)
	return errno == 0 && flags&syscall.FD_CLOEXEC == 0
}

// Reap waits for a process that has ended, or soon does, and frees its id.
func Reap(pid int) (syscall.WaitStatus, error) {
	var status syscall.WaitStatus
	for {
		if _, err := syscall.Wait4(pid, &status, 0, nil); err != syscall.EINTR {
			return status, err
		}
	}
}

// Kill ends another process at once.
func Kill(pid int) error {
	if pid <= 1 || pid == syscall.Getpid() {
		return syscall.EINVAL
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}

// SignalGroup sends a signal to all processes of a group. That none is left is no error.
func SignalGroup(group int, sig syscall.Signal) error {
	if group <= 1 {
		return syscall.EINVAL // would be this process's own group, or every process there is
	}
	if err := syscall.Kill(-group, sig); err != syscall.ESRCH {
		return err
	}
	return nil
}
