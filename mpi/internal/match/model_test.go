package match

import (
	"fmt"
	"slices"
)

// model is the rule itself: one list of receives in the order of posting, one of messages in the order of
// arrival.
type model struct {
	posted     []*Posted[int]
	unexpected []*Message[int]
}

func matches(context uint32, source, tag int32, m *Message[int]) bool {
	return context == m.Context && (source == AnySource || source == m.Source) &&
		(tag == AnyTag || tag == m.Tag)
}

func (o *model) probe(context uint32, source, tag int32) *Message[int] {
	for _, m := range o.unexpected {
		if matches(context, source, tag, m) {
			return m
		}
	}
	return nil
}

func (o *model) take(m *Message[int]) bool {
	i := slices.Index(o.unexpected, m)
	if i >= 0 {
		o.unexpected = slices.Delete(o.unexpected, i, i+1)
	}
	return i >= 0
}

func (o *model) withdraw(p *Posted[int]) bool {
	i := slices.Index(o.posted, p)
	if i >= 0 {
		o.posted = slices.Delete(o.posted, i, i+1)
	}
	return i >= 0
}

func (o *model) post(p *Posted[int]) *Message[int] {
	if m := o.probe(p.Context, p.Source, p.Tag); m != nil {
		o.take(m)
		return m
	}
	o.posted = append(o.posted, p)
	return nil
}

func (o *model) arrive(m *Message[int]) *Posted[int] {
	for _, p := range o.posted {
		if matches(p.Context, p.Source, p.Tag, m) {
			o.withdraw(p)
			return p
		}
	}
	return nil
}

// pair runs a table and the model side by side on the same receives and messages, and reports the first
// difference.
type pair struct {
	table      *Table[int, int]
	model      model
	receives   []*Posted[int]  // every one ever made, waiting or not
	messages   []*Message[int] // every one ever filed
	recycled   []*Posted[int]  // matched or withdrawn, to be posted again
	dead       []*Message[int] // taken, to be filed again
	matched    int             // receives that met a message, in either order
	fromWild   int             // of those, receives from AnySource
	indexedBin int             // steps after which some queue had an index
}

func name[T any](p *T) string {
	switch v := any(p).(type) {
	case *Posted[int]:
		if v != nil {
			return fmt.Sprintf("receive %d (context %d, source %d, tag %d)", v.Value, v.Context, v.Source,
				v.Tag)
		}
	case *Message[int]:
		if v != nil {
			return fmt.Sprintf("message %d (context %d, source %d, tag %d)", v.Value, v.Context, v.Source,
				v.Tag)
		}
	}
	return "none"
}

func differ[T any](what string, got, want *T) error {
	if got != want {
		return fmt.Errorf("%s gave %s, the rule says %s", what, name(got), name(want))
	}
	return nil
}

func (w *pair) post(context uint32, source, tag int32) error {
	var p *Posted[int]
	if n := len(w.recycled); n > 0 {
		p, w.recycled = w.recycled[n-1], w.recycled[:n-1]
	} else {
		p = &Posted[int]{Value: len(w.receives)}
		w.receives = append(w.receives, p)
	}
	p.Context, p.Source, p.Tag = context, source, tag
	m := w.table.Post(p)
	if err := differ("Post", m, w.model.post(p)); err != nil {
		return fmt.Errorf("%s: %w", name(p), err)
	}
	if m != nil {
		w.recycled, w.dead = append(w.recycled, p), append(w.dead, m)
		w.count(p)
	}
	return nil
}

func (w *pair) arrive(context uint32, source, tag int32) error {
	var m *Message[int]
	if n := len(w.dead); n > 0 {
		m, w.dead = w.dead[n-1], w.dead[:n-1]
	} else {
		m = &Message[int]{Value: len(w.messages)}
		w.messages = append(w.messages, m)
	}
	m.Context, m.Source, m.Tag = context, source, tag
	p := w.table.Arrive(context, source, tag)
	if err := differ("Arrive", p, w.model.arrive(m)); err != nil {
		return fmt.Errorf("%s: %w", name(m), err)
	}
	if p != nil {
		w.recycled, w.dead = append(w.recycled, p), append(w.dead, m)
		w.count(p)
		return nil
	}
	w.table.AddUnexpected(m)
	w.model.unexpected = append(w.model.unexpected, m)
	return nil
}

func (w *pair) count(p *Posted[int]) {
	w.matched++
	if p.Source == AnySource {
		w.fromWild++
	}
}

func (w *pair) probe(context uint32, source, tag int32, take bool) error {
	m := w.table.Probe(context, source, tag)
	if err := differ("Probe", m, w.model.probe(context, source, tag)); err != nil || m == nil || !take {
		return err
	}
	if !w.table.RemoveUnexpected(m) || !w.model.take(m) {
		return fmt.Errorf("%s was probed and could not be taken", name(m))
	}
	if w.table.RemoveUnexpected(m) {
		return fmt.Errorf("%s was taken twice", name(m))
	}
	w.dead = append(w.dead, m)
	return nil
}

// withdraw tries any receive ever made, so also those that have matched.
func (w *pair) withdraw(i int) error {
	if len(w.receives) == 0 {
		return nil
	}
	p := w.receives[i%len(w.receives)]
	got, want := w.table.RemovePosted(p), w.model.withdraw(p)
	if got != want {
		return fmt.Errorf("Withdraw of %s gave %v, the rule says %v", name(p), got, want)
	}
	if got {
		w.recycled = append(w.recycled, p)
	}
	return nil
}

// failSource is what the owner does when a rank dies.
func (w *pair) failSource(source int32) error {
	for p := range w.table.Posted() {
		if p.Source == source {
			if !w.table.RemovePosted(p) || !w.model.withdraw(p) {
				return fmt.Errorf("%s was shown by Posted and did not wait", name(p))
			}
			w.recycled = append(w.recycled, p)
		}
	}
	for m := range w.table.Unexpected() {
		if m.Source == source {
			if !w.table.RemoveUnexpected(m) || !w.model.take(m) {
				return fmt.Errorf("%s was shown by Unexpected and did not wait", name(m))
			}
			w.dead = append(w.dead, m)
		}
	}
	for _, p := range w.model.posted {
		if p.Source == source {
			return fmt.Errorf("Posted did not show %s", name(p))
		}
	}
	for _, m := range w.model.unexpected {
		if m.Source == source {
			return fmt.Errorf("Unexpected did not show %s", name(m))
		}
	}
	return nil
}

// check compares all that waits.
func (w *pair) check() error {
	var posted []*Posted[int]
	for p := range w.table.Posted() {
		posted = append(posted, p)
	}
	var unexpected []*Message[int]
	for m := range w.table.Unexpected() {
		unexpected = append(unexpected, m)
	}
	np, nm := w.table.Lengths()
	if np != len(posted) || nm != len(unexpected) {
		return fmt.Errorf("Waiting counts %d and %d, the loops show %d and %d", np, nm, len(posted),
			len(unexpected))
	}
	if len(posted) != len(w.model.posted) || len(unexpected) != len(w.model.unexpected) {
		return fmt.Errorf("%d receives and %d messages wait, the rule says %d and %d",
			len(posted), len(unexpected), len(w.model.posted), len(w.model.unexpected))
	}
	at := func(p *Posted[int]) int { return slices.Index(w.model.posted, p) }
	for i, p := range posted {
		if at(p) < 0 {
			return fmt.Errorf("%s waits, the rule says it does not", name(p))
		}
		if i > 0 && posted[i-1].Context == p.Context && posted[i-1].Source == p.Source &&
			at(posted[i-1]) > at(p) {
			return fmt.Errorf("Posted shows %s before %s, which was posted earlier", name(posted[i-1]),
				name(p))
		}
	}
	for _, m := range unexpected {
		if !slices.Contains(w.model.unexpected, m) {
			return fmt.Errorf("%s waits, the rule says it does not", name(m))
		}
	}
	wild := 0
	for _, p := range w.model.posted {
		if p.Source == AnySource {
			wild++
		}
	}
	if wild != w.table.wildcards {
		return fmt.Errorf("%d receives from any source are counted, %d wait", w.table.wildcards, wild)
	}
	return nil
}

func (w *pair) note() {
	for _, s := range w.table.bins.slots {
		if s.bin != nil && (s.bin.posted.chains != nil || s.bin.unexpected.chains != nil) {
			w.indexedBin++
			return
		}
	}
}
