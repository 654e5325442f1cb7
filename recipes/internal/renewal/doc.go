// Package renewal has what recipes need that outlive a session: sessions that
// are opened anew when the present one has expired, growing pauses between
// attempts, writes that leave nothing behind when they are given up, and folders.
//
// It starts no goroutine that outlives the session it works for.
package renewal
