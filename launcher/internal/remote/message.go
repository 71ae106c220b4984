package remote

import (
	"encoding/binary"
	"fmt"
	"reflect"

	"github.com/weft-mpi/weft/internal/pmi"
	"github.com/weft-mpi/weft/internal/snapshot"
	"github.com/weft-mpi/weft/launcher/internal/agent"
)

// A form is how the messages of one type stand in frames. Messages that carry data, keys or values, or that
// consist of a rank, are binary, with the rank first (ofRank, afterRank). Others are rare and go as JSON
// (inJSON), or have no contents (empty).
type form struct {
	kind   kind
	of     reflect.Type
	encode func(message any) (body [][]byte, err error)
	decode func(k kind, body []byte) (message any, rank int, err error) // rank is -1 for none
}

// forms are those of the messages of one direction, which E is.
type forms[E any] []form

var commandForms = forms[agent.Command]{
	inJSON[agent.Start](kindStart, nil),
	empty[agent.Halt](kindHalt),
	inJSON[agent.Signal](kindSignal, nil),
	empty[agent.Release](kindRelease),
	empty[agent.TellWaits](kindTellWaits),
	ofRank[agent.HangUp](kindHangUp),
	ofRank[agent.Input](kindInput),
	inJSON[agent.Ask](kindAsk, nil),
	inJSON[agent.Records](kindRecords, nil),
	ofRank[agent.Failed](kindFailed),
	inJSON(kindPause, func(c agent.Pause) error {
		if c.Stream >= agent.Streams {
			return fmt.Errorf("%w: stream %d", errProtocol, c.Stream)
		}
		return nil
	}),
	afterRank(kindFound, func(c agent.Found) [][]byte {
		return [][]byte{rankOf(c.Rank), {flag(c.OK)}, textOf([]string{c.Key, c.Value})}
	}, func(rank int, b []byte) (agent.Found, error) {
		ok, texts, err := splitTexts(b)
		if err == nil && len(texts) != 2 {
			err = fmt.Errorf("%w: an answer about %d keys", errProtocol, len(texts)/2)
		}
		if err != nil {
			return agent.Found{}, err
		}
		return agent.Found{Rank: rank, OK: ok, Key: texts[0], Value: texts[1]}, nil
	}),
}

// eventForms has none for Lost, which is no event of the far side.
var eventForms = forms[agent.Event]{
	inJSON[agent.Started](kindStarted, nil),
	inJSON[agent.NotStarted](kindNotStarted, nil),
	empty[agent.AllStarted](kindAllStarted),
	inJSON(kindExited, func(e agent.Exited) error { return checkState(e.State) }),
	inJSON[agent.Stopped](kindStopped, nil),
	inJSON[agent.Continued](kindContinued, nil),
	ofRank[agent.OutputEnd](kindOutputEnd),
	inJSON[agent.Waits](kindWaits, nil),
	inJSON[agent.Aborts](kindAborts, nil),
	inJSON[agent.LostPeer](kindLostPeer, nil),
	inJSON[agent.Disturbs](kindDisturbs, nil),
	inJSON[agent.InputTaken](kindInputTaken, nil),
	ofRank[agent.Quiet](kindQuiet),
	ofRank[agent.Moving](kindMoving),
	ofRank[agent.Answer](kindAnswer),
	ofRank[agent.Sampled](kindSampled),
	ofRank[agent.Recorded](kindRecorded),
	afterRank(kindOutput, func(e agent.Output) [][]byte {
		return [][]byte{rankOf(e.Rank), {byte(e.Stream)}, e.Data}
	}, func(rank int, b []byte) (agent.Output, error) {
		if len(b) == 0 || b[0] >= agent.Streams {
			return agent.Output{}, fmt.Errorf("%w: output of no stream", errProtocol)
		}
		return agent.Output{Rank: rank, Stream: agent.Stream(b[0]), Data: b[1:]}, nil
	}),
	afterRank(kindArrived, func(e agent.Arrived) [][]byte {
		return [][]byte{rankOf(e.Rank), {flag(e.More)}, textOf(e.Puts)}
	}, func(rank int, b []byte) (agent.Arrived, error) {
		more, puts, err := splitTexts(b)
		for i := 0; err == nil && i < len(puts); i += 2 {
			err = checkPut(puts[i], puts[i+1])
		}
		return agent.Arrived{Rank: rank, More: more, Puts: puts}, err
	}),
	afterRank(kindFind, func(e agent.Find) [][]byte {
		return [][]byte{rankOf(e.Rank), []byte(e.Key)}
	}, func(rank int, b []byte) (agent.Find, error) {
		return agent.Find{Rank: rank, Key: string(b)}, checkPut(string(b), "")
	}),
	afterRank(kindPMIClosed, func(e agent.PMIClosed) [][]byte {
		return [][]byte{rankOf(e.Rank), {byte(e.State)}}
	}, func(rank int, b []byte) (agent.PMIClosed, error) {
		if len(b) != 1 {
			return agent.PMIClosed{}, fmt.Errorf("%w: a closed connection of a rank in no state", errProtocol)
		}
		return agent.PMIClosed{Rank: rank, State: pmi.State(b[0])}, checkState(pmi.State(b[0]))
	}),
	afterRank(kindArtifact, func(e agent.Artifact) [][]byte {
		return [][]byte{rankOf(e.Rank), {byte(e.What), flag(e.Last)}, e.Data}
	}, func(rank int, b []byte) (agent.Artifact, error) {
		if len(b) < 2 {
			return agent.Artifact{}, fmt.Errorf("%w: an artifact of no kind", errProtocol)
		}
		return agent.Artifact{Rank: rank, What: snapshot.Artifact(b[0]), Last: b[1] != 0, Data: b[2:]}, nil
	}),
}

// append appends the frame of a message.
func (l forms[E]) append(b []byte, message E) ([]byte, error) {
	for _, f := range l {
		if f.of == reflect.TypeOf(message) {
			body, err := f.encode(message)
			return appendFrame(b, f.kind, body...), err
		}
	}
	return nil, fmt.Errorf("%w: %T has no frame", errProtocol, message)
}

// parse reads the body of a frame, and returns the rank that the message concerns, -1 for none.
func (l forms[E]) parse(k kind, body []byte) (message E, rank int, err error) {
	for _, f := range l {
		if f.kind == k {
			m, rank, err := f.decode(k, body)
			if err != nil {
				return message, 0, err
			}
			return m.(E), rank, nil
		}
	}
	return message, 0, fmt.Errorf("%w: a frame of kind %d, which is not for this side", errProtocol, k)
}

// empty is the form of messages without contents.
func empty[M any](k kind) form {
	return form{k, reflect.TypeFor[M](), func(any) ([][]byte, error) { return nil, nil },
		func(kind, []byte) (any, int, error) { return *new(M), -1, nil }}
}

// inJSON is the form of messages in JSON. check, which may be nil, checks one that was read.
func inJSON[M any](k kind, check func(M) error) form {
	return form{k, reflect.TypeFor[M](), func(message any) ([][]byte, error) {
		body, err := Marshal(message)
		return [][]byte{body}, err
	}, func(k kind, body []byte) (any, int, error) {
		m, err := parseJSON[M](k, body)
		if err == nil && check != nil {
			err = check(m)
		}
		if f := reflect.ValueOf(m).FieldByName("Rank"); f.IsValid() {
			return m, int(f.Int()), err
		}
		return m, -1, err
	}}
}

// ofRank is the form of messages that consist of a rank or, if M has two fields, of a rank and bytes.
func ofRank[M any](k kind) form {
	return afterRank(k, func(m M) [][]byte {
		v := reflect.ValueOf(m)
		parts := [][]byte{rankOf(int(v.Field(0).Int()))}
		if v.NumField() > 1 {
			parts = append(parts, v.Field(1).Bytes())
		}
		return parts
	}, func(rank int, data []byte) (m M, err error) {
		v := reflect.ValueOf(&m).Elem()
		v.Field(0).SetInt(int64(rank))
		if v.NumField() > 1 {
			v.Field(1).SetBytes(data)
		}
		return m, nil
	})
}

// afterRank is the form of messages whose contents follow their rank.
func afterRank[M any](k kind, parts func(M) [][]byte, read func(rank int, contents []byte) (M, error)) form {
	return form{k, reflect.TypeFor[M](), func(message any) ([][]byte, error) {
		return parts(message.(M)), nil
	}, func(k kind, body []byte) (any, int, error) {
		rank, contents, err := splitRank(k, body)
		if err != nil {
			return nil, 0, err
		}
		m, err := read(rank, contents)
		return m, rank, err
	}}
}

func rankOf(rank int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(rank)) }

func appendJSON(b []byte, k kind, v any) ([]byte, error) {
	body, err := Marshal(v)
	if err != nil {
		return nil, err
	}
	return appendFrame(b, k, body), nil
}

func parseJSON[T any](k kind, body []byte) (v T, err error) {
	if err = Unmarshal(body, &v); err != nil {
		err = fmt.Errorf("%w: a frame of kind %d: %w", errProtocol, k, err)
	}
	return v, err
}

func splitRank(k kind, body []byte) (rank int, rest []byte, err error) {
	if len(body) < 4 {
		return 0, nil, fmt.Errorf("%w: a frame of kind %d names no rank", errProtocol, k)
	}
	return int(binary.BigEndian.Uint32(body)), body[4:], nil
}

func flag(on bool) byte {
	if on {
		return 1
	}
	return 0
}

func checkPut(key, value string) error {
	if err := pmi.CheckPair(key, value); err != nil {
		return fmt.Errorf("%w: %w", errProtocol, err)
	}
	return nil
}

func checkState(s pmi.State) error {
	if s > pmi.Finalized {
		return fmt.Errorf("%w: a rank in state %d", errProtocol, s)
	}
	return nil
}

// textOf puts texts one after the other, each after its length of 2 bytes.
func textOf(texts []string) (b []byte) {
	for _, t := range texts {
		b = binary.BigEndian.AppendUint16(b, uint16(len(t)))
		b = append(b, t...)
	}
	return b
}

// splitTexts reads a flag, and keys and values in turn.
func splitTexts(b []byte) (on bool, texts []string, err error) {
	if len(b) == 0 {
		return false, nil, fmt.Errorf("%w: keys and values that are cut short", errProtocol)
	}
	on, b = b[0] != 0, b[1:]
	for len(b) > 0 {
		if len(b) < 2 || len(b)-2 < int(binary.BigEndian.Uint16(b)) {
			return false, nil, fmt.Errorf("%w: a text that is cut short", errProtocol)
		}
		n := int(binary.BigEndian.Uint16(b))
		texts = append(texts, string(b[2:2+n]))
		b = b[2+n:]
	}
	if len(texts)%2 != 0 {
		return false, nil, fmt.Errorf("%w: a key without a value", errProtocol)
	}
	return on, texts, nil
}
