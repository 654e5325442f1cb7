// Package wire encodes and decodes the messages of the ZooKeeper client protocol
// as version 3.8 speaks it: frames hold a header and a record, whose fields stand
// one after the other in the encoding that ZooKeeper calls jute. It knows both
// directions, for servers and for clients.
//
// It is not a client or a server: it reads no connection, checks no path and no
// permission, and gives no meaning to what it reads.
//
// Decoding never panics and never allocates more than a small multiple of its
// input. What it returns is a copy: the input may be used again. A record that
// ends early is [ErrMarshalling]; bytes behind its end are ignored, as ZooKeeper
// ignores them.
//
// Functions have no state; a [Request] may be decoded into again and again, by one
// caller at a time.
package wire
