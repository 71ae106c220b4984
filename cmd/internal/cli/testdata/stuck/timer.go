//go:build timer

package main

import "time"

// later has a timer call a function.
func later(f func()) { time.AfterFunc(time.Hour, f) }
