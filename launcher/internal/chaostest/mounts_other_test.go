//go:build !linux

package chaostest

import "syscall"

// namespaceOfMounts gives nothing: only Linux has mounts that a process does not share.
func namespaceOfMounts() *syscall.SysProcAttr { return nil }
