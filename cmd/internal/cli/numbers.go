package cli

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/launcher"
)

// maxNumber bounds numbers that need no bound of their own.
const maxNumber = 1e9

// number is the value of an option: a whole number.
type number struct {
	to       *int
	min, max int
}

func (n number) Set(text string) error {
	v, err := strconv.Atoi(text)
	if err != nil || v < n.min || v > n.max {
		return fmt.Errorf("not a whole number from %d up to %d", n.min, n.max)
	}
	*n.to = v
	return nil
}

func (number) String() string { return "" }
func (number) Type() string   { return "N" }

// endpoints is a number of endpoints, or auto.
type endpoints struct{ to *int }

func (n endpoints) Set(text string) error {
	if text == "auto" {
		*n.to = launcher.EndpointsAuto
		return nil
	}
	err := (number{n.to, 1, launcher.MaxEndpoints}).Set(text)
	if err != nil {
		err = fmt.Errorf("%w, or auto", err)
	}
	return err
}

func (endpoints) String() string { return "" }
func (endpoints) Type() string   { return "N|auto" }

// perNode is a value of --map-by, which --ppn sets by a number of ranks.
type perNode string

func (p *perNode) Set(text string) error {
	var n int
	if err := (number{&n, 1, maxNumber}).Set(text); err != nil {
		return err
	}
	*p = perNode(fmt.Sprintf("ppr:%d:node", n))
	return nil
}

func (*perNode) String() string { return "" }
func (*perNode) Type() string   { return "N" }

// size is a number of bytes.
type size int

func (s *size) Set(text string) error {
	n, err := setting.ParseBytes(text)
	if err != nil || n == 0 || n > 1<<31-1 {
		return fmt.Errorf("%q is not a size, such as 8, 64K or 4M", text)
	}
	*s = size(n)
	return nil
}

func (*size) String() string { return "" }
func (*size) Type() string   { return "SIZE" }

// timeLimit is a duration that may also be a number of seconds, as other launchers take it.
type timeLimit time.Duration

func (t *timeLimit) Set(text string) error {
	d, err := time.ParseDuration(text)
	if seconds, numErr := strconv.ParseUint(text, 10, 31); numErr == nil {
		d, err = time.Duration(seconds)*time.Second, nil
	}
	if err != nil || d <= 0 {
		return errors.New("not a duration above zero, such as 90s or 2h")
	}
	*t = timeLimit(d)
	return nil
}

func (t *timeLimit) String() string {
	if *t == 0 {
		return ""
	}
	return time.Duration(*t).String()
}

func (t *timeLimit) Type() string { return "duration" }

// stuckLimit is a duration; 0 switches the watch for deadlocks off.
type stuckLimit time.Duration

const defaultStuck = stuckLimit(10 * time.Second)

func (s *stuckLimit) Set(text string) error {
	if text == "0" {
		*s = 0
		return nil
	}
	return (*timeLimit)(s).Set(text)
}

func (s *stuckLimit) String() string { return time.Duration(*s).String() }
func (*stuckLimit) Type() string     { return "duration" }
