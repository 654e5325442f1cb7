package server

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coordd/coord/api/coordpb"
)

// TestHeartbeatsOfManySessionsTravelTogether: each is judged by itself.
func TestHeartbeatsOfManySessionsTravelTogether(t *testing.T) {
	r := start(t, oneServer(t))
	stream, err := coordpb.NewCoordClient(r.dial()).Heartbeat(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var beats []*coordpb.Beat
	for i := range 20 {
		w := r.open().welcome
		if w.GetLimits().GetBeatsPerMessage() < 20 {
			t.Fatalf("the server takes %d heartbeats at once", w.GetLimits().GetBeatsPerMessage())
		}
		beats = append(beats, &coordpb.Beat{SessionId: w.GetSessionId(), Secret: w.GetSecret(), Connection: 1, Number: uint64(i + 1)})
	}
	beats[3].Secret = nonce()
	beats[7].Connection = 9
	if err := stream.Send(&coordpb.HeartbeatRequest{Beats: beats}); err != nil {
		t.Fatal(err)
	}
	got := map[uint64]*coordpb.BeatAnswer{}
	for len(got) < len(beats) {
		m, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if m.GetSessionId() != 0 || len(m.GetAnswers()) == 0 {
			t.Fatalf("who sends several heartbeats at once is answered with %v", m)
		}
		for _, a := range m.GetAnswers() {
			got[a.GetSessionId()] = a
		}
	}
	for i, b := range beats {
		want := coordpb.Code_CODE_OK
		switch i {
		case 3:
			want = coordpb.Code_CODE_AUTH_FAILED
		case 7:
			want = coordpb.Code_CODE_SESSION_MOVED
		}
		if a := got[b.SessionId]; a.GetNumber() != b.Number || a.GetError().GetCode() != want {
			t.Errorf("heartbeat %d: %v, want %s", i, a, want)
		}
	}
}

func TestTooManyHeartbeatsAtOnceEndTheirStream(t *testing.T) {
	r := start(t, oneServer(t))
	stream, err := r.coord().Heartbeat(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	beats := make([]*coordpb.Beat, maxBeats+1)
	for i := range beats {
		beats[i] = &coordpb.Beat{SessionId: uint64(i + 1)}
	}
	if err := stream.Send(&coordpb.HeartbeatRequest{Beats: beats[:maxBeats]}); err != nil {
		t.Fatal(err)
	}
	if m, err := stream.Recv(); err != nil || len(m.GetAnswers()) == 0 {
		t.Fatalf("as many as are allowed: %v, %v", m, err)
	}
	if err := stream.Send(&coordpb.HeartbeatRequest{Beats: beats}); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.InvalidArgument {
		t.Fatalf("the stream ended with %v", err)
	}
}

// TestNewestAnswerWins: an answer that comes late says nothing that the newer
// one does not, not even if it is a refusal: that was for an older connection.
func TestNewestAnswerWins(t *testing.T) {
	b := newBeats()
	b.answer(1, 5, nil)
	b.answer(1, 4, errForeign)
	b.answer(2, 4, nil)
	b.answer(2, 4, errForeign)
	answers, lists := b.take()
	if len(answers) != 2 || lists {
		t.Fatalf("%v, in lists: %v", answers, lists)
	}
	for _, a := range answers {
		if refused := a.GetError() != nil; refused != (a.SessionId == 2) {
			t.Errorf("%v", a)
		}
	}
	if again, _ := b.take(); len(again) != 0 {
		t.Errorf("told twice: %v", again)
	}
}
