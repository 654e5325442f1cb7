package zoocfg

import "strings"

// rest names what no step took: first what is known to have no meaning here, then
// what nobody knows.
func (c *converter) rest() {
	for _, e := range c.taken("") {
		if strings.HasPrefix(e.Key, prefixOurs) {
			c.entries[e.Key] = e
			continue
		}
		if reason := reasonFor(e.Key); reason != "" {
			c.out.Notes = append(c.out.Notes, Note{Entry: e, Text: "has no meaning here: " + reason, Idle: true})
		} else {
			c.note(e, "is not known here; ZooKeeper hands such keys to its process as properties")
		}
	}
}

// reasonFor is "" for a key that nobody knows.
func reasonFor(key string) string {
	if reason, ok := meaningless[key]; ok {
		return reason
	}
	for _, f := range families {
		if strings.HasPrefix(key, f.prefix) {
			return f.reason
		}
	}
	return ""
}

// meaningless are the keys that cannot be kept because there is nothing here that
// they are about.
var meaningless = map[string]string{
	"initLimit":                       "a server that catches up is given the time that it takes",
	"syncLimit":                       "raft.heartbeat says when a follower looks for another leader, raft.lease when a leader steps down",
	"electionAlg":                     "elections are those of Raft",
	"cnxTimeout":                      "elections are those of Raft",
	"electionPortBindRetry":           "one port serves elections and replication; a server that cannot have it does not start",
	"leaderServes":                    "the leader serves clients, too",
	"standaloneEnabled":               "one server is a cluster like any other",
	"reconfigEnabled":                 "servers cannot be added to or taken out of a running cluster yet; clients that ask are told so",
	"quorumListenOnAllIPs":            "a server by itself is not listened to by others",
	"observerMasterPort":              "observers are fed by the leader",
	"connectToLearnerMasterLimit":     "observers are fed by the leader",
	"syncEnabled":                     "observers keep log and snapshots as all servers do",
	"localSessionsEnabled":            "all sessions are those of the cluster: they can have ephemerals and move at any time",
	"localSessionsUpgradingEnabled":   "all sessions are those of the cluster",
	"snapCount":                       "raft.snapshot_log_size says how much log causes a snapshot",
	"snapSizeLimitInKb":               "raft.snapshot_log_size says how much log causes a snapshot",
	"preAllocSize":                    "the log decides on the size of its files",
	"txnLogSizeLimitInKb":             "the log decides on the size of its files",
	"commitLogCount":                  "servers catch up from the log",
	"forceSync":                       "every write is on the disks of a majority before it is answered",
	"fsync.warningthresholdms":        "log.slow_request says which requests are logged as slow",
	"warningthresholdms":              "log.slow_request says which requests are logged as slow",
	"globalOutstandingLimit":          "limits.requests_in_flight bounds each session by itself",
	"clientPortListenBacklog":         "the system's own limit holds",
	"clientPortBindRetry":             "a server that cannot have its port does not start",
	"serverCnxnFactory":               "there is one kind of connection",
	"tcpKeepAlive":                    "connections between servers are watched by messages of their own",
	"digest.enabled":                  "replicas always compare themselves",
	"extendedTypesEnabled":            "nodes with a time to live are always there",
	"emulate353TTLNodes":              "there is no such data",
	"znode.container.checkIntervalMs": "containers that are empty are looked for all the time",
	"znode.container.maxPerMinute":    "containers that are empty are looked for all the time",
	"containerCheckIntervalMs":        "containers that are empty are looked for all the time",
	"enforceQuota":                    "hard limits in /zookeeper/quota are always kept to, and others never",
	"enableEagerACLCheck":             "writes are checked when they are applied",
	"maxResponseCacheSize":            "answers are made from memory",
	"maxGetChildrenResponseCacheSize": "answers are made from memory",
	"watchManagerName":                "there is one kind of table of watches",
	"flushDelay":                      "writes are put together while the disk is busy, and never wait otherwise",
	"maxWriteQueuePollTime":           "writes are put together while the disk is busy, and never wait otherwise",
	"maxBatchSize":                    "writes are put together while the disk is busy, and never wait otherwise",
	"client.portUnification":          "a port tells TLS by its first byte",
	"sslQuorumReloadCertFiles":        "changed certificate files are always read again",
	"client.certReload":               "changed certificate files are always read again",
	"admin.idleTimeout":               "it belongs to ZooKeeper's own server for commands",
	"admin.commandURL":                "it belongs to ZooKeeper's own server for commands",
	"audit.enable":                    "what administrators do is always logged",
	"ssl.hostnameVerification":        "servers' names are always checked against their certificates",
	"ssl.quorum.hostnameVerification": "servers' names are always checked against their certificates",
	"ssl.clientHostnameVerification":  "clients are told apart by their names, not by their hosts",
}

// families are keys that begin alike.
var families = []struct{ prefix, reason string }{
	{"autopurge.", "old snapshots and log are always removed"},
	{"quorum.", "one port and its connections serve everything between servers"},
	{"multiAddress.", "servers have one address each"},
	{"metricsProvider.", "it belongs to a metrics provider that is not here"},
	{"admin.", "it belongs to ZooKeeper's own server for commands; see listen.http"},
	{"jvm.pause.", "there is no virtual machine; pauses of the process are logged"},
	{"netty.", "there is no Netty"},
	{"nio.", "there is no such pool of threads"},
	{"request_throttle", "limits.requests_in_flight and limits.writes_per_second bound each session"},
	{"requestThrottle", "limits.requests_in_flight and limits.writes_per_second bound each session"},
	{"connectionMaxTokens", "limits.connections and limits.connections_per_address bound connections"},
	{"connection", "limits.connections and limits.connections_per_address bound connections"},
	{"snapshot.", "snapshots have a form of their own"},
	{"leader.", "leading follows Raft's rules"},
	{"learner.", "following follows Raft's rules"},
	{"observer.", "observers are fed by the leader, as all servers are"},
	{"commitProcessor.", "requests of a connection are answered in order, by a goroutine of each connection"},
	{"ssl.", "versions and ciphers of TLS are those that are safe today"},
	{"kerberos.", "there is no SASL"},
	{"jaas.", "there is no SASL"},
	{"sasl.", "there is no SASL"},
}
