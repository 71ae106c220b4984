package frame

// Partial is the rest of a frame of which the socket has taken a part.
type Partial struct {
	head []byte // header and copied payload
	tail []byte // the CRC after a gathered payload
	n    int    // of vec
	vec  [MaxSGE][]byte
}

func (c *Partial) Empty() bool { return len(c.head) == 0 && c.n == 0 && len(c.tail) == 0 }

// Gathers tells whether memory of a request, or of a region, is a part of the rest.
func (c *Partial) Gathers() bool { return c.n > 0 }

// Keep takes bytes that are copied.
func (c *Partial) Keep(b []byte) { c.head = append(c.head[:0], b...) }

// Held is how many bytes the copy takes of memory.
func (c *Partial) Held() int { return cap(c.head) + cap(c.tail) }

func (c *Partial) Reset() { c.head, c.n, c.tail = c.head[:0], 0, c.tail[:0] }

// Save takes the bytes from n to end of a batch.
func (c *Partial) Save(o *Batch, n, end int) {
	at := 0
	for _, v := range o.vec[:o.n] {
		from, to := max(n, at), min(end, at+len(v))
		if from < to {
			b := v[from-at : to-at]
			switch {
			case !o.owns(b):
				c.vec[c.n] = b
				c.n++
			case c.n > 0:
				c.tail = append(c.tail, b...)
			default:
				c.head = append(c.head, b...)
			}
		}
		at += len(v)
	}
}

func (c *Partial) AppendTo(o *Batch) {
	if len(c.head) > 0 {
		o.Direct(c.head)
	}
	for _, v := range c.vec[:c.n] {
		o.Direct(v)
	}
	if len(c.tail) > 0 {
		o.Direct(c.tail)
	}
}

// Advance forgets the first n bytes, which have been written.
func (c *Partial) Advance(n int) {
	k := min(n, len(c.head))
	c.head = c.head[:copy(c.head, c.head[k:])]
	n -= k
	for n > 0 && c.n > 0 {
		v := c.vec[0]
		if n < len(v) {
			c.vec[0] = v[n:]
			return
		}
		n -= len(v)
		c.n--
		copy(c.vec[:], c.vec[1:])
	}
	c.tail = c.tail[:copy(c.tail, c.tail[n:])]
}
