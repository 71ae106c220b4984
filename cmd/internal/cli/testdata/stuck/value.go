//go:build value

package main

import "time"

var afterFunc = time.AfterFunc

// later has a timer call a function, by way of a variable.
func later(f func()) { afterFunc(time.Hour, f) }
