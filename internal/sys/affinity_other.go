//go:build !linux

package sys

import (
	"errors"
	"runtime"
	"time"
)

// Affinity lists all processors: this system has no affinity masks.
func Affinity() ([]int, error) {
	cpus := make([]int, runtime.NumCPU())
	for i := range cpus {
		cpus[i] = i
	}
	return cpus, nil
}

// SetAffinity fails: this system has no affinity masks.
func SetAffinity([]int) error {
	return errors.New("binding to cores needs Linux, not " + runtime.GOOS)
}

// SetTimerSlack fails: this system has no timer slack.
func SetTimerSlack(time.Duration) error {
	return errors.New("timer slack needs Linux, not " + runtime.GOOS)
}
