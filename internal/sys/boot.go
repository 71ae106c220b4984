package sys

import (
	"os"
	"strings"
)

// BootID returns an id of the running kernel: a machine has another one after each boot. Namespaces and
// containers share it. On other systems than Linux it fails.
func BootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id)), err
}
