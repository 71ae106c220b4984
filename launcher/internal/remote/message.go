package remote

import (
	"encoding/binary"
	"fmt"

	"github.com/weft-mpi/weft/internal/pmi"
	"github.com/weft-mpi/weft/internal/snapshot"
	"github.com/weft-mpi/weft/launcher/internal/agent"
)

// Data goes as it is, after its rank; everything else is rare and goes as JSON.

func rankOf(rank int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(rank)) }

// appendCommand appends the frame of a command.
func appendCommand(b []byte, c agent.Command) ([]byte, error) {
	switch c := c.(type) {
	case agent.Start:
		return appendJSON(b, kindStart, c)
	case agent.Halt:
		return appendFrame(b, kindHalt), nil
	case agent.Signal:
		return appendJSON(b, kindSignal, c)
	case agent.Release:
		return appendFrame(b, kindRelease), nil
	case agent.Found:
		return appendFrame(b, kindFound, rankOf(c.Rank), []byte{flag(c.OK)},
			textOf([]string{c.Key, c.Value})), nil
	case agent.TellWaits:
		return appendFrame(b, kindTellWaits), nil
	case agent.HangUp:
		return appendFrame(b, kindHangUp, rankOf(c.Rank)), nil
	case agent.Input:
		return appendFrame(b, kindInput, rankOf(c.Rank), c.Data), nil
	case agent.Pause:
		return appendJSON(b, kindPause, c)
	case agent.Ask:
		return appendJSON(b, kindAsk, c)
	case agent.Records:
		return appendJSON(b, kindRecords, c)
	case agent.Failed:
		return appendFrame(b, kindFailed, rankOf(c.Rank)), nil
	}
	return nil, fmt.Errorf("%w: a command %T has no frame", errProtocol, c)
}

// parseCommand reads the body of a command's frame.
func parseCommand(k kind, body []byte) (agent.Command, error) {
	switch k {
	case kindStart:
		return parseJSON[agent.Start](k, body)
	case kindHalt:
		return agent.Halt{}, nil
	case kindSignal:
		return parseJSON[agent.Signal](k, body)
	case kindRelease:
		return agent.Release{}, nil
	case kindFound:
		rank, ok, texts, err := splitTexts(k, body)
		if err == nil && len(texts) != 2 {
			err = fmt.Errorf("%w: an answer about %d keys", errProtocol, len(texts)/2)
		}
		if err != nil {
			return nil, err
		}
		return agent.Found{Rank: rank, OK: ok, Key: texts[0], Value: texts[1]}, nil
	case kindTellWaits:
		return agent.TellWaits{}, nil
	case kindHangUp:
		rank, _, err := splitRank(k, body)
		return agent.HangUp{Rank: rank}, err
	case kindInput:
		rank, data, err := splitRank(k, body)
		return agent.Input{Rank: rank, Data: data}, err
	case kindPause:
		c, err := parseJSON[agent.Pause](k, body)
		if err == nil && c.Stream >= agent.Streams {
			err = fmt.Errorf("%w: stream %d", errProtocol, c.Stream)
		}
		return c, err
	case kindAsk:
		return parseJSON[agent.Ask](k, body)
	case kindRecords:
		return parseJSON[agent.Records](k, body)
	case kindFailed:
		rank, _, err := splitRank(k, body)
		return agent.Failed{Rank: rank}, err
	}
	return nil, fmt.Errorf("%w: a frame of kind %d is no command", errProtocol, k)
}

// appendEvent appends the frame of an event. Lost is no event of the far side.
func appendEvent(b []byte, e agent.Event) ([]byte, error) {
	switch e := e.(type) {
	case agent.Started:
		return appendJSON(b, kindStarted, e)
	case agent.NotStarted:
		return appendJSON(b, kindNotStarted, e)
	case agent.AllStarted:
		return appendFrame(b, kindAllStarted), nil
	case agent.Exited:
		return appendJSON(b, kindExited, e)
	case agent.Stopped:
		return appendJSON(b, kindStopped, e)
	case agent.Continued:
		return appendJSON(b, kindContinued, e)
	case agent.Output:
		return appendFrame(b, kindOutput, rankOf(e.Rank), []byte{byte(e.Stream)}, e.Data), nil
	case agent.OutputEnd:
		return appendFrame(b, kindOutputEnd, rankOf(e.Rank)), nil
	case agent.Arrived:
		return appendFrame(b, kindArrived, rankOf(e.Rank), []byte{flag(e.More)}, textOf(e.Puts)), nil
	case agent.Find:
		return appendFrame(b, kindFind, rankOf(e.Rank), []byte(e.Key)), nil
	case agent.Waits:
		return appendJSON(b, kindWaits, e)
	case agent.Aborts:
		return appendJSON(b, kindAborts, e)
	case agent.LostPeer:
		return appendJSON(b, kindLostPeer, e)
	case agent.Disturbs:
		return appendJSON(b, kindDisturbs, e)
	case agent.PMIClosed:
		return appendFrame(b, kindPMIClosed, rankOf(e.Rank), []byte{byte(e.State)}), nil
	case agent.InputTaken:
		return appendJSON(b, kindInputTaken, e)
	case agent.Quiet:
		return appendFrame(b, kindQuiet, rankOf(e.Rank)), nil
	case agent.Moving:
		return appendFrame(b, kindMoving, rankOf(e.Rank)), nil
	case agent.Answer:
		return appendFrame(b, kindAnswer, rankOf(e.Rank), e.Snapshot), nil
	case agent.Sampled:
		return appendFrame(b, kindSampled, rankOf(e.Rank), e.Sample), nil
	case agent.Recorded:
		return appendFrame(b, kindRecorded, rankOf(e.Rank), e.Events), nil
	case agent.Artifact:
		return appendFrame(b, kindArtifact, rankOf(e.Rank), []byte{byte(e.What), flag(e.Last)}, e.Data), nil
	}
	return nil, fmt.Errorf("%w: an event %T has no frame", errProtocol, e)
}

// parseEvent reads the body of an event's frame, and returns the rank that it concerns, -1 for none.
func parseEvent(k kind, body []byte) (e agent.Event, rank int, err error) {
	switch k {
	case kindStarted:
		v, err := parseJSON[agent.Started](k, body)
		return v, v.Rank, err
	case kindNotStarted:
		v, err := parseJSON[agent.NotStarted](k, body)
		return v, v.Rank, err
	case kindAllStarted:
		return agent.AllStarted{}, -1, nil
	case kindExited:
		v, err := parseJSON[agent.Exited](k, body)
		if err == nil {
			err = checkState(v.State)
		}
		return v, v.Rank, err
	case kindStopped:
		v, err := parseJSON[agent.Stopped](k, body)
		return v, v.Rank, err
	case kindContinued:
		v, err := parseJSON[agent.Continued](k, body)
		return v, v.Rank, err
	case kindOutput:
		rank, rest, err := splitRank(k, body)
		if err == nil && (len(rest) == 0 || rest[0] >= agent.Streams) {
			err = fmt.Errorf("%w: output of no stream", errProtocol)
		}
		if err != nil {
			return nil, 0, err
		}
		return agent.Output{Rank: rank, Stream: agent.Stream(rest[0]), Data: rest[1:]}, rank, nil
	case kindOutputEnd:
		rank, _, err := splitRank(k, body)
		return agent.OutputEnd{Rank: rank}, rank, err
	case kindArrived:
		rank, more, puts, err := splitTexts(k, body)
		for i := 0; err == nil && i < len(puts); i += 2 {
			if bad := pmi.CheckPair(puts[i], puts[i+1]); bad != nil {
				err = fmt.Errorf("%w: %w", errProtocol, bad)
			}
		}
		return agent.Arrived{Rank: rank, More: more, Puts: puts}, rank, err
	case kindFind:
		rank, key, err := splitRank(k, body)
		if err == nil {
			if bad := pmi.CheckPair(string(key), ""); bad != nil {
				err = fmt.Errorf("%w: %w", errProtocol, bad)
			}
		}
		return agent.Find{Rank: rank, Key: string(key)}, rank, err
	case kindWaits:
		v, err := parseJSON[agent.Waits](k, body)
		return v, v.Rank, err
	case kindAborts:
		v, err := parseJSON[agent.Aborts](k, body)
		return v, v.Rank, err
	case kindLostPeer:
		v, err := parseJSON[agent.LostPeer](k, body)
		return v, v.Rank, err
	case kindDisturbs:
		v, err := parseJSON[agent.Disturbs](k, body)
		return v, v.Rank, err
	case kindPMIClosed:
		rank, rest, err := splitRank(k, body)
		if err == nil && len(rest) != 1 {
			err = fmt.Errorf("%w: a closed connection of a rank in no state", errProtocol)
		}
		if err == nil {
			err = checkState(pmi.State(rest[0]))
		}
		if err != nil {
			return nil, 0, err
		}
		return agent.PMIClosed{Rank: rank, State: pmi.State(rest[0])}, rank, nil
	case kindInputTaken:
		v, err := parseJSON[agent.InputTaken](k, body)
		return v, v.Rank, err
	case kindQuiet:
		rank, _, err := splitRank(k, body)
		return agent.Quiet{Rank: rank}, rank, err
	case kindMoving:
		rank, _, err := splitRank(k, body)
		return agent.Moving{Rank: rank}, rank, err
	case kindAnswer:
		rank, data, err := splitRank(k, body)
		return agent.Answer{Rank: rank, Snapshot: data}, rank, err
	case kindSampled:
		rank, data, err := splitRank(k, body)
		return agent.Sampled{Rank: rank, Sample: data}, rank, err
	case kindRecorded:
		rank, data, err := splitRank(k, body)
		return agent.Recorded{Rank: rank, Events: data}, rank, err
	case kindArtifact:
		rank, data, err := splitRank(k, body)
		if err == nil && len(data) < 2 {
			err = fmt.Errorf("%w: an artifact of no kind", errProtocol)
		}
		if err != nil {
			return nil, 0, err
		}
		return agent.Artifact{Rank: rank, What: snapshot.Artifact(data[0]), Last: data[1] != 0,
			Data: data[2:]}, rank, nil
	}
	return nil, 0, fmt.Errorf("%w: a frame of kind %d is no event", errProtocol, k)
}

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

// splitTexts reads a rank, a flag, and keys and values in turn.
func splitTexts(k kind, body []byte) (rank int, on bool, texts []string, err error) {
	rank, b, err := splitRank(k, body)
	if err == nil && len(b) == 0 {
		err = fmt.Errorf("%w: a frame of kind %d is cut short", errProtocol, k)
	}
	if err != nil {
		return 0, false, nil, err
	}
	on, b = b[0] != 0, b[1:]
	for len(b) > 0 {
		if len(b) < 2 || len(b)-2 < int(binary.BigEndian.Uint16(b)) {
			return 0, false, nil, fmt.Errorf("%w: a text that is cut short", errProtocol)
		}
		n := int(binary.BigEndian.Uint16(b))
		texts = append(texts, string(b[2:2+n]))
		b = b[2+n:]
	}
	if len(texts)%2 != 0 {
		return 0, false, nil, fmt.Errorf("%w: a key without a value", errProtocol)
	}
	return rank, on, texts, nil
}
