package znode

import "github.com/coordd/coord/session"

// Permission bits of an ACL entry.
const (
	PermRead   uint32 = 1 << iota // get data, list children
	PermWrite                     // set data
	PermCreate                    // create children
	PermDelete                    // delete children
	PermAdmin                     // set the ACL
	PermAll    = PermRead | PermWrite | PermCreate | PermDelete | PermAdmin
)

// ACL gives the holders of an identity some permissions.
type ACL struct {
	Perms  uint32
	Scheme string
	ID     string
}

// Identity is what a caller has proved to be.
type Identity = session.Identity

// OpenACL lets everybody do everything. It must not be changed.
var OpenACL = []ACL{{Perms: PermAll, Scheme: "world", ID: "anyone"}}
