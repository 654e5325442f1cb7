package wire

import "fmt"

// Type is the number of an operation.
type Type int32

// Operations of a request.
const (
	Create               Type = 1
	Delete               Type = 2
	Exists               Type = 3
	GetData              Type = 4
	SetData              Type = 5
	GetACL               Type = 6
	SetACL               Type = 7
	GetChildren          Type = 8
	Sync                 Type = 9
	Ping                 Type = 11
	GetChildren2         Type = 12
	Check                Type = 13 // only inside a multi
	Multi                Type = 14
	Create2              Type = 15
	Reconfig             Type = 16
	CheckWatches         Type = 17
	RemoveWatches        Type = 18
	CreateContainer      Type = 19
	CreateTTL            Type = 21
	MultiRead            Type = 22
	Auth                 Type = 100
	SetWatches           Type = 101
	SASL                 Type = 102
	GetEphemerals        Type = 103
	GetAllChildrenNumber Type = 104
	SetWatches2          Type = 105
	AddWatch             Type = 106
	WhoAmI               Type = 107
	CloseSession         Type = -11

	// errorResult marks a failed operation in the reply to a multi.
	errorResult Type = -1
)

var typeNames = map[Type]string{
	Create: "create", Delete: "delete", Exists: "exists", GetData: "getData", SetData: "setData", GetACL: "getACL", SetACL: "setACL",
	GetChildren: "getChildren", Sync: "sync", Ping: "ping", GetChildren2: "getChildren2", Check: "check", Multi: "multi", Create2: "create2",
	Reconfig: "reconfig", CheckWatches: "checkWatches", RemoveWatches: "removeWatches", CreateContainer: "createContainer", CreateTTL: "createTTL",
	MultiRead: "multiRead", Auth: "auth", SetWatches: "setWatches", SASL: "sasl", GetEphemerals: "getEphemerals",
	GetAllChildrenNumber: "getAllChildrenNumber", SetWatches2: "setWatches2", AddWatch: "addWatch", WhoAmI: "whoAmI", CloseSession: "closeSession",
}

// String is the operation's name as ZooKeeper writes it.
func (t Type) String() string {
	if s, ok := typeNames[t]; ok {
		return s
	}
	return fmt.Sprintf("operation %d", int32(t))
}

// Request ids that mean something. All others are the client's own.
const (
	XidEvent      int32 = -1 // in a reply: a watch event
	XidPing       int32 = -2
	XidAuth       int32 = -4
	XidSetWatches int32 = -8
)

// Flags of a create.
const (
	FlagPersistent              int32 = 0
	FlagEphemeral               int32 = 1
	FlagSequential              int32 = 2
	FlagEphemeralSequential     int32 = 3
	FlagContainer               int32 = 4
	FlagPersistentTTL           int32 = 5
	FlagPersistentSequentialTTL int32 = 6
)

// Modes of AddWatch.
const (
	AddPersistent          int32 = 0
	AddPersistentRecursive int32 = 1
)

// Kinds of watches of CheckWatches and RemoveWatches.
const (
	WatchChildren int32 = 1
	WatchData     int32 = 2
	WatchAny      int32 = 3
)

// EventType says what an event is about.
type EventType int32

// Types of events.
const (
	EventCreated  EventType = 1
	EventDeleted  EventType = 2
	EventChanged  EventType = 3
	EventChildren EventType = 4
)
