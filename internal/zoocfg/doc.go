// Package zoocfg reads ZooKeeper's configuration file, zoo.cfg, and says which
// settings of coordd have the same meaning.
//
// It is not a reader of coordd's own configuration: what comes out are names and
// texts of settings, which are checked where every setting is. Keys that have no
// meaning here are named with the reason, and keys that promise something that
// coordd would not keep, such as a login or a revoked certificate, are refused.
//
// Nothing is read but through Files, and nothing is kept: all functions may be
// called at the same time.
package zoocfg
