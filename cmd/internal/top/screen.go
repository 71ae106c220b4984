package top

import (
	"context"

	"github.com/gdamore/tcell/v3"
	"github.com/gdamore/tcell/v3/color"

	"github.com/weft-mpi/weft/internal/live"
)

var styles = [...]tcell.Style{
	Normal: tcell.StyleDefault,
	Bold:   tcell.StyleDefault.Bold(true),
	Head:   tcell.StyleDefault.Reverse(true),
	Alarm:  tcell.StyleDefault.Foreground(color.Red),
	Faint:  tcell.StyleDefault.Dim(true),
}

var keys = map[tcell.Key]string{
	tcell.KeyUp: Up, tcell.KeyDown: Down, tcell.KeyPgUp: PageUp, tcell.KeyPgDn: PageDown,
	tcell.KeyHome: Home, tcell.KeyEnd: End, tcell.KeyEnter: Enter, tcell.KeyEscape: Escape,
	tcell.KeyBackspace: Backspace, tcell.KeyDEL: Backspace, tcell.KeyCtrlC: Interrupt,
}

// Show shows on a terminal what comes from jobs, until the user leaves, ctx ends or jobs is closed. The
// screen is initialized, and its owner's.
func Show(ctx context.Context, screen tcell.Screen, jobs <-chan *live.Job) {
	var v View
	for {
		v.draw(screen)
		select {
		case <-ctx.Done():
			return
		case j, more := <-jobs:
			if !more {
				return
			}
			v.Show(j)
		case e := <-screen.EventQ():
			switch e := e.(type) {
			case *tcell.EventResize:
				screen.Sync()
			case *tcell.EventKey:
				key := e.Str()
				if name, is := keys[e.Key()]; is {
					key = name
				}
				if _, height := screen.Size(); v.Key(key, height) {
					return
				}
			}
		}
	}
}

func (v *View) draw(screen tcell.Screen) {
	width, height := screen.Size()
	screen.Clear()
	for y, line := range v.Lines(height) {
		style := styles[line.Style]
		if line.Style == Head {
			screen.FillArea(0, y, width, 1, ' ', style)
		}
		screen.PutStrStyled(0, y, line.Text, style)
	}
	screen.Show()
}
