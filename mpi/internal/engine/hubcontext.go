package engine

import "github.com/weft-mpi/weft/internal/contextid"

// The calls below concern a context id, at the endpoint that its number names. An endpoint that has not been
// made knows no context.

func (h *Hub) engineOf(context uint32) *Engine { return h.engines[contextid.Endpoint(context)].Load() }

// HasEndpoint reports whether the rank has an endpoint of this number. It makes the endpoint on its first
// use, and reports false if that fails.
func (h *Hub) HasEndpoint(number int) bool {
	_, err := h.Endpoint(number)
	if err != nil && number < h.conf.Endpoints {
		h.log.Warn("an endpoint cannot be made", "endpoint", number, "error", err)
	}
	return err == nil
}

// FreeContext ends the use of a context: see Engine.FreeContext.
func (h *Hub) FreeContext(context uint32) {
	if e := h.engineOf(context); e != nil {
		e.FreeContext(context)
	}
}

// ReuseContext ends FreeContext: another communicator begins to use the context.
func (h *Hub) ReuseContext(context uint32) {
	if e := h.engineOf(context); e != nil {
		e.ReuseContext(context)
	}
}

// ContextInUse reports whether a context id cannot be used again yet.
func (h *Hub) ContextInUse(context uint32) bool {
	e := h.engineOf(context)
	return e != nil && e.ContextInUse(context)
}

// ReleaseContext frees what is stored for a context that is no longer used.
func (h *Hub) ReleaseContext(context uint32) {
	if e := h.engineOf(context); e != nil {
		e.ReleaseContext(context)
	}
}
