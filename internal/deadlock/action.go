package deadlock

import "fmt"

// Action is what to do about a job that hangs, as written in settings and flags.
type Action string

const (
	// OnlyReport tells the user.
	OnlyReport Action = "report"
	// Abort also ends the job when the deadlock is certain.
	Abort Action = "abort"
	// AbortUnmoved also ends the job without proof, when nothing has moved for long.
	AbortUnmoved Action = "abort-unmoved"
)

// Actions lists the actions, for messages.
const Actions = "report, abort or abort-unmoved"

// ParseAction parses an action.
func ParseAction(text string) (Action, error) {
	switch a := Action(text); a {
	case OnlyReport, Abort, AbortUnmoved:
		return a, nil
	}
	return "", fmt.Errorf("must be %s", Actions)
}

// Why returns why a report ends the job; empty if it does not.
func (a Action) Why(r *Report) string {
	switch {
	case r.Proven && a != OnlyReport:
		return "the job is ended because of the deadlock"
	case r.Unmoved && a == AbortUnmoved:
		return "the job is ended because nothing has moved"
	}
	return ""
}

// Advice returns how to end a job that goes on after a report, if there is such advice. name is the option or
// variable that sets the action.
func (a Action) Advice(r *Report, name string) string {
	switch {
	case r.Proven:
		return fmt.Sprintf("the job goes on; %s%s ends it, and so does a signal", name, Abort)
	case r.Unmoved && a == Abort:
		return fmt.Sprintf("that is no proof, so the job goes on; %s%s ends it, and so does a signal", name,
			AbortUnmoved)
	}
	return ""
}
