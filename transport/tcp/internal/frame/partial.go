package frame

// Partial is the rest of a frame that the socket has accepted in part.
type Partial struct {
	head []byte // header and copied payload
	tail []byte // the CRC after a gathered payload
	n    int    // of vec
	vec  [MaxSGE][]byte
}

func (p *Partial) Empty() bool { return len(p.head) == 0 && p.n == 0 && len(p.tail) == 0 }

// Gathers reports whether the rest includes memory of a request or a region by reference.
func (p *Partial) Gathers() bool { return p.n > 0 }

// Keep stores a copy of b as the rest.
func (p *Partial) Keep(b []byte) { p.head = append(p.head[:0], b...) }

// Append adds a copy of b to the rest, which has no memory by reference.
func (p *Partial) Append(b []byte) { p.head = append(p.head, b...) }

// Held returns the memory size of the copies.
func (p *Partial) Held() int { return cap(p.head) + cap(p.tail) }

func (p *Partial) Reset() { p.head, p.n, p.tail = p.head[:0], 0, p.tail[:0] }

// Save stores the bytes from n to end of a batch.
func (p *Partial) Save(o *Batch, n, end int) {
	at := 0
	for _, v := range o.vec[:o.n] {
		from, to := max(n, at), min(end, at+len(v))
		if from < to {
			b := v[from-at : to-at]
			switch {
			case !o.owns(b):
				p.vec[p.n] = b
				p.n++
			case p.n > 0:
				p.tail = append(p.tail, b...)
			default:
				p.head = append(p.head, b...)
			}
		}
		at += len(v)
	}
}

func (p *Partial) AppendTo(o *Batch) {
	if len(p.head) > 0 {
		o.Direct(p.head)
	}
	for _, v := range p.vec[:p.n] {
		o.Direct(v)
	}
	if len(p.tail) > 0 {
		o.Direct(p.tail)
	}
}

// Advance drops the first n bytes, which have been written.
func (p *Partial) Advance(n int) {
	k := min(n, len(p.head))
	p.head = p.head[:copy(p.head, p.head[k:])]
	n -= k
	for n > 0 && p.n > 0 {
		v := p.vec[0]
		if n < len(v) {
			p.vec[0] = v[n:]
			return
		}
		n -= len(v)
		p.n--
		copy(p.vec[:], p.vec[1:])
	}
	p.tail = p.tail[:copy(p.tail, p.tail[n:])]
}
