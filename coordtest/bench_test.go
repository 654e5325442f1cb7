package coordtest

import (
	"testing"

	"github.com/coordd/coord/client"
)

// BenchmarkStart is what a test pays for a cluster of its own and a client: the
// time is that of waiting for a leader.
func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		c := Start(b)
		if _, err := c.Dial().Create(b.Context(), "/n", nil, client.WithEphemeral()); err != nil {
			b.Fatal(err)
		}
		c.close()
	}
}
