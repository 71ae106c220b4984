package chaostest

import (
	"os"
	"syscall"
)

// namespaceOfMounts gives a command mounts of its own, and where this user may mount nothing, the rights to
// do so there.
func namespaceOfMounts() *syscall.SysProcAttr {
	own := &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if uid := os.Geteuid(); uid != 0 {
		own.Cloneflags = syscall.CLONE_NEWUSER
		own.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		own.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	return own
}
