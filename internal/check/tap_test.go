package check

import (
	"strings"
	"testing"

	"github.com/coordd/coord/api/coordpb"
)

// TestStreamsAreHeldToTheirOrder plays messages of a stream with watch 5.
func TestStreamsAreHeldToTheirOrder(t *testing.T) {
	reply := func(z uint64) *coordpb.Reply { return &coordpb.Reply{Id: 5, Zxid: z} }
	event := func(z uint64, index uint32) *coordpb.Event {
		return &coordpb.Event{WatchId: 5, Zxid: z, Index: index, Type: coordpb.EventType_EVENT_CHANGED, Path: "/a"}
	}
	type messages []*coordpb.SessionReply
	for name, c := range map[string]struct {
		say  string // "" for what is right
		told messages
	}{
		"resumed":                {"", messages{{Replies: []*coordpb.Reply{reply(10)}, Events: []*coordpb.Event{event(8, 0), event(8, 1), event(11, 0)}, Zxid: 11}, {Zxid: 11}, {Events: []*coordpb.Event{event(12, 0)}, Zxid: 11}}},
		"resumed in a later one": {"", messages{{Replies: []*coordpb.Reply{reply(10)}}, {Events: []*coordpb.Event{event(8, 0)}, Zxid: 10}}},
		"before the reply":       {"before the reply", messages{{Events: []*coordpb.Event{event(8, 0)}}, {Replies: []*coordpb.Reply{reply(10)}}}},
		"behind what shows it":   {"behind what shows", messages{{Replies: []*coordpb.Reply{reply(10)}}, {Zxid: 12}, {Events: []*coordpb.Event{event(12, 0)}, Zxid: 12}}},
		"backwards":              {"comes behind one", messages{{Replies: []*coordpb.Reply{reply(10)}, Events: []*coordpb.Event{event(12, 0), event(11, 0)}}}},
		"twice":                  {"comes behind one", messages{{Replies: []*coordpb.Reply{reply(10)}, Events: []*coordpb.Event{event(12, 0), event(12, 0)}}}},
		"behind the welcome":     {"comes behind one", messages{{Welcome: &coordpb.Welcome{}, Zxid: 12}, {Replies: []*coordpb.Reply{reply(11)}, Zxid: 11}}},
		"mark goes back":         {"comes behind one", messages{{Zxid: 12}, {Zxid: 11}}},
	} {
		var said []string
		o := streamOrder{report: func(s string) { said = append(said, s) }}
		o.asked(&coordpb.SessionRequest{Requests: []*coordpb.Request{{Id: 5, Watch: &coordpb.Watch{}}}})
		for _, m := range c.told {
			o.told(m)
		}
		if text := strings.Join(said, "; "); (c.say == "") != (text == "") || !strings.Contains(text, c.say) {
			t.Errorf("%s: %q is said, want %q", name, text, c.say)
		}
	}
}
