package wire

import "fmt"

// Code is the result of an operation.
type Code int32

// Codes that a server sends.
const (
	OK                   Code = 0
	SystemError          Code = -1
	RuntimeInconsistency Code = -2 // of a multi that failed elsewhere
	MarshallingError     Code = -5
	Unimplemented        Code = -6
	BadArguments         Code = -8
	NewConfigNoQuorum    Code = -13
	ReconfigInProgress   Code = -14
	NoNode               Code = -101
	NoAuth               Code = -102
	BadVersion           Code = -103
	NoChildrenForEphem   Code = -108
	NodeExists           Code = -110
	NotEmpty             Code = -111
	SessionExpired       Code = -112
	InvalidACL           Code = -114
	AuthFailed           Code = -115
	SessionMoved         Code = -118
	NotReadOnly          Code = -119
	NoWatcher            Code = -121
	RequestTimeout       Code = -122
	ReconfigDisabled     Code = -123
	QuotaExceeded        Code = -125
	Throttled            Code = -127
)

var codeNames = map[Code]string{
	OK: "ok", SystemError: "system error", RuntimeInconsistency: "runtime inconsistency", MarshallingError: "marshalling error",
	Unimplemented: "unimplemented", BadArguments: "bad arguments", NewConfigNoQuorum: "new configuration has no quorum",
	ReconfigInProgress: "reconfiguration in progress", NoNode: "no node", NoAuth: "not authorised", BadVersion: "bad version",
	NoChildrenForEphem: "ephemerals have no children", NodeExists: "node exists", NotEmpty: "not empty", SessionExpired: "session expired",
	InvalidACL: "invalid ACL", AuthFailed: "authentication failed", SessionMoved: "session moved", NotReadOnly: "not read-only",
	NoWatcher: "no watcher", RequestTimeout: "request timed out", ReconfigDisabled: "reconfiguration disabled", QuotaExceeded: "quota exceeded",
	Throttled: "throttled",
}

// String is the code in words.
func (c Code) String() string {
	if s, ok := codeNames[c]; ok {
		return s
	}
	return fmt.Sprintf("error %d", int32(c))
}

// Error makes a code other than OK an error, for clients.
func (c Code) Error() string { return c.String() }
