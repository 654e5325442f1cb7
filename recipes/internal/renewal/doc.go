// Package renewal has what recipes need that outlive a session: sessions that
// are opened anew when the present one has expired, the options of a lock that is
// taken again and again in them, and growing pauses between attempts.
//
// It starts no goroutine that outlives the session it works for.
package renewal
