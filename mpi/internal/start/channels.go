package start

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// readChannels reads the settings of channels and protocols, and refuses values that cannot work before
// anything is started. The peer timeout must be known.
func (o *Options) readChannels(set setting.Values) error {
	var err error
	c := &o.Engine
	conf := &c.Channel
	if conf.Phases, err = channel.ParsePhases(set.Of(setting.Phases).String()); err != nil {
		return fmt.Errorf("%s: %w", setting.Phases.Name, err)
	}
	if err := parseThreshold(conf, set); err != nil {
		return err
	}
	if err := parseVector(conf, set); err != nil {
		return err
	}
	if conf.KeepSmall, err = set.Of(setting.KeepSmall).On(); err != nil {
		return err
	}
	budget, err := set.Of(setting.Budget).Bytes(1)
	if err != nil {
		return err
	}
	if budget > 0 {
		conf.Budget = channel.NewBudget(budget)
	}
	if err := conf.Check(); err != nil {
		return fmt.Errorf("%s=%s, %s=%s, %s=%s: %w", setting.Phases.Name, set.Of(setting.Phases),
			setting.Threshold.Name, set.Of(setting.Threshold),
			setting.Budget.Name, set.Of(setting.Budget), err)
	}
	switch way := set.Of(setting.Rendezvous).String(); way {
	case "auto":
	case "read":
		c.Rendezvous = engine.RendezvousRead
	case "write":
		c.Rendezvous = engine.RendezvousWrite
	default:
		return fmt.Errorf("%s=%q: must be auto, read or write", setting.Rendezvous.Name, way)
	}
	if set.Of(setting.ShrinkAfter).String() != "never" {
		if c.ShrinkAfter, err = set.Of(setting.ShrinkAfter).Duration(); err != nil {
			return err
		}
		c.ShrinkAfter = max(c.ShrinkAfter, time.Millisecond)
	}
	if err := parseReplies(c, set); err != nil {
		return err
	}
	if set.Of(setting.Passive).String() != "never" {
		if c.Passive, err = set.Of(setting.Passive).Duration(); err != nil {
			return err
		}
		c.Passive = max(c.Passive, 10*time.Microsecond)
	}
	if c.EagerLimit, err = set.Of(setting.EagerMax).Bytes(1); err != nil {
		return err
	}
	if c.MaxUnexpectedBytes, err = set.Of(setting.UnexpectedMax).Bytes(1); err != nil {
		return err
	}
	c.MaxUnexpectedCount, err = set.Of(setting.UnexpectedCount).Bytes(1)
	return err
}

func parseThreshold(c *channel.Config, set setting.Values) error {
	text := set.Of(setting.Threshold).String()
	if text == "" {
		return nil
	}
	number, percent := strings.CutSuffix(text, "%")
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 {
		return fmt.Errorf("%s=%q: neither a number of bytes above 0, nor 80%% to 99%%",
			setting.Threshold.Name, text)
	}
	if percent {
		c.ThresholdPercent = n
	} else {
		c.Threshold = n
	}
	return nil
}

// parseReplies reads how long the answers to requests for other buffers are waited for. PeerTimeout must be
// known.
func parseReplies(c *engine.Config, set setting.Values) error {
	var err error
	switch text := set.Of(setting.ReplyTimeout).String(); text {
	case "never":
	case "":
		c.ReplyTimeout = c.PeerTimeout
	default:
		if c.ReplyTimeout, err = set.Of(setting.ReplyTimeout).Duration(); err != nil {
			return fmt.Errorf("%s=%q: must be a duration such as 10s, or never",
				setting.ReplyTimeout.Name, text)
		}
		c.ReplyTimeout = max(c.ReplyTimeout, time.Millisecond)
	}
	c.Channel.TailLooks, err = set.Of(setting.TailLooks).Int(1, channel.MaxTailLooks)
	return err
}

func parseVector(c *channel.Config, set setting.Values) error {
	text := set.Of(setting.Vector).String()
	which, rest, whole := strings.Cut(text, ",")
	policies := map[string]channel.Policy{"first": channel.FirstOversized,
		"largest": channel.LargestElement, "sum": channel.SumOversized}
	policy, ok := policies[which]
	if !ok || whole && rest != "whole" {
		return fmt.Errorf("%s=%q: must be first, largest or sum, with or without ,whole after it",
			setting.Vector.Name, text)
	}
	c.Policy, c.Whole = policy, whole
	return nil
}
