// Package tunnet is a network between hosts that exist only on this machine, for
// tests with real processes. Each host is a network namespace with an address of
// its own, and the wire between them is this process: it carries each packet from
// the one's TUN device to the other's, or delays it, loses it, repeats it, or
// drops all of one direction. So the TCP of the kernel meets what it meets in a
// bad network, and a cut is silence and not a closed connection.
//
// It needs Linux, root, and /dev/net/tun; New says what is missing. The kernel's
// own emulation (tc netem) is not needed and not used: many kernels come without.
package tunnet

import "time"

// Link is how the wire treats the packets of one direction between two hosts.
// The zero value carries them at once and loses none.
type Link struct {
	Delay  time.Duration // before a packet arrives
	Jitter time.Duration // up to so much more; packets overtake one another
	Loss   float64       // the part of packets that is lost, 0 to 1
	Repeat float64       // the part of packets that arrives twice
	Cut    bool          // nothing arrives
}
