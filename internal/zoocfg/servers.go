package zoocfg

import (
	"cmp"
	"fmt"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"
)

// namePrefix makes a server's number its name: ZooKeeper's tools find the number
// at the end of it.
const namePrefix = "zk"

// listed is a server.N line.
type listed struct {
	Entry
	number int
	host   string
	port   int
	votes  bool
	client string // host:port, "" if the line does not say it
}

// dynamic adds the entries of dynamicConfigFile.
func (c *converter) dynamic() {
	e, ok := c.take("dynamicConfigFile")
	if !ok {
		return
	}
	text, err := c.files.Read(e.Value)
	if err != nil {
		c.refuse(e, fmt.Sprintf("cannot be read: %v", err))
		return
	}
	entries, err := properties(e.Value, text)
	if err != nil {
		c.refuse(e, err.Error())
		return
	}
	for _, d := range entries {
		if !strings.HasPrefix(d.Key, "server.") && !strings.HasPrefix(d.Key, "group.") && !strings.HasPrefix(d.Key, "weight.") && d.Key != "version" {
			c.refuse(d, "does not belong into a dynamic configuration")
			return
		}
	}
	c.add(entries)
	c.take("version")
}

// dataName is coordd's directory in dataDir, so that nothing of ZooKeeper's is
// touched and the way back stays open.
const dataName = "coordd"

func (c *converter) data() {
	e, ok := c.entries["dataDir"]
	if !ok {
		c.refuse(c.rule("dataDir"), "dataDir is missing")
		return
	}
	c.take("dataDir")
	c.set("node.data_dir", path.Join(e.Value, dataName), e)
	logs, separate := c.take("dataLogDir")
	if separate {
		c.note(logs, "log and snapshots are in one directory, below dataDir; put that on the faster disk")
	}
	for _, dir := range []Entry{e, logs} {
		old := path.Join(dir.Value, "version-2")
		if dir.Key != "" && c.files.Exists(old) {
			c.note(dir, fmt.Sprintf("%s has a ZooKeeper's data, which is not read: copy it from the running ZooKeeper with 'coordctl import zookeeper'", old))
		}
	}
}

func (c *converter) servers() {
	for _, prefix := range []string{"group.", "weight."} {
		for _, e := range c.taken(prefix) {
			c.refuse(e, "quorums of groups and weights are not known here: a majority of the servers decides")
		}
	}
	var all []listed
	for _, e := range c.taken("server.") {
		if s, err := parseServer(e); err != nil {
			c.refuse(e, err.Error())
		} else {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b listed) int { return cmp.Compare(a.number, b.number) })
	if len(all) == 0 {
		if e, ok := c.take("peerType"); ok && !strings.EqualFold(e.Value, "participant") {
			c.refuse(e, "a server by itself has to vote")
		}
		return // ports makes one up
	}
	own := c.self(all)
	var peers, observers []string
	for _, s := range all {
		entry := fmt.Sprintf("%s%d=%s", namePrefix, s.number, join(s.host, s.port))
		if s.votes {
			peers = append(peers, entry)
		} else {
			observers = append(observers, entry)
		}
		c.checkServer(s, own)
	}
	if len(peers) == 0 {
		c.refuse(all[0].Entry, "all servers are observers: at least one has to vote")
		return
	}
	c.set("cluster.bootstrap", "auto", c.rule("servers of a zoo.cfg find each other"))
	c.set("cluster.peers", strings.Join(peers, ","), all[0].Entry)
	if len(observers) > 0 {
		c.set("cluster.observers", strings.Join(observers, ","), all[0].Entry)
	}
	c.checkPeerType(own)
	if own != nil {
		c.setOwn("node.name", fmt.Sprintf("%s%d", namePrefix, own.number), own.Entry)
		c.client = own.client
		c.listenToPeers(*own)
	}
}

// self finds this server in the list by the number in dataDir/myid.
func (c *converter) self(all []listed) *listed {
	dir, ok := c.out.Get("node.data_dir")
	if !ok {
		return nil
	}
	name := path.Join(path.Dir(dir), "myid")
	from := Entry{File: name, Key: "myid"}
	text, err := c.files.Read(name)
	if err != nil {
		if len(all) == 1 {
			return &all[0]
		}
		c.refuse(from, fmt.Sprintf("cannot tell which server this is: %v", err))
		return nil
	}
	number, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		c.refuse(from, fmt.Sprintf("%s: %q is no number of a server", name, strings.TrimSpace(string(text))))
		return nil
	}
	i := slices.IndexFunc(all, func(s listed) bool { return s.number == number })
	if i < 0 {
		c.refuse(from, fmt.Sprintf("%s says %d, and there is no server.%d", name, number, number))
		return nil
	}
	return &all[i]
}

// checkServer refuses what only the server itself can mean.
func (c *converter) checkServer(s listed, own *listed) {
	if ip := net.ParseIP(s.host); ip != nil && ip.IsUnspecified() {
		c.refuse(s.Entry, "the list has to be the same on all servers: write the server's address, and quorumListenOnAllIPs=true to listen on all of them")
	}
	if own != nil && own.number == s.number && strings.Contains(s.Value, "|") {
		c.note(s.Entry, "servers have one address each here: the first one counts")
	}
}

func (c *converter) listenToPeers(own listed) {
	all, e := c.flag("quorumListenOnAllIPs", false)
	if all {
		c.setOwn("listen.peer", ":"+strconv.Itoa(own.port), e)
	}
}

// parseServer reads host:port:port[:role][;[host:]port]. Of several addresses with
// "|" between them it takes the first.
func parseServer(e Entry) (listed, error) {
	s := listed{Entry: e}
	number, err := strconv.Atoi(strings.TrimPrefix(e.Key, "server."))
	if err != nil || number < 0 {
		return s, fmt.Errorf("%q is no number of a server", strings.TrimPrefix(e.Key, "server."))
	}
	s.number = number
	servers, client, hasClient := strings.Cut(e.Value, ";")
	first, _, _ := strings.Cut(servers, "|")
	host, ports, err := cutHost(first)
	if err != nil {
		return s, err
	}
	if len(ports) < 2 || len(ports) > 3 || host == "" {
		return s, fmt.Errorf("want host:port:port, have %q", first)
	}
	s.host, s.votes = host, true
	if len(ports) == 3 {
		if s.votes, err = parseRole(ports[2]); err != nil {
			return s, err
		}
	}
	for _, p := range ports[:2] {
		if _, err := parsePort(p); err != nil {
			return s, err
		}
	}
	s.port, _ = parsePort(ports[0]) // it was read above
	if !hasClient {
		return s, nil
	}
	s.client, err = parseClient(strings.TrimSpace(client))
	return s, err
}

// parseRole says whether a server of that role votes.
func parseRole(role string) (votes bool, err error) {
	switch role = strings.TrimSpace(role); {
	case strings.EqualFold(role, "participant"):
		return true, nil
	case strings.EqualFold(role, "observer"):
		return false, nil
	default:
		return false, fmt.Errorf("%q is no role of a server (want participant or observer)", role)
	}
}

// checkPeerType compares peerType, which an observer of ZooKeeper's has, with what
// the list says: the list is the same on all servers, and counts.
func (c *converter) checkPeerType(own *listed) {
	e, ok := c.take("peerType")
	if !ok {
		return
	}
	votes, err := parseRole(e.Value)
	switch {
	case err != nil:
		c.refuse(e, err.Error())
	case own == nil || votes == own.votes:
	case votes:
		c.refuse(e, fmt.Sprintf("server.%d is listed as an observer", own.number))
	default:
		c.refuse(e, fmt.Sprintf("write it into the list, as all servers need to know: server.%d=...:observer", own.number))
	}
}

// parseClient reads [host:]port.
func parseClient(text string) (string, error) {
	host, port, ok := "", text, false
	if i := strings.LastIndex(text, ":"); i >= 0 {
		host, port, ok = text[:i], text[i+1:], true
	}
	n, err := parsePort(port)
	if err != nil {
		return "", err
	}
	if ok && host == "" {
		return "", fmt.Errorf("%q has no host", text)
	}
	return join(strings.Trim(host, "[]"), n), nil
}

// cutHost takes the host, which may be an IPv6 address in brackets, from what
// follows it.
func cutHost(text string) (host string, rest []string, err error) {
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, "[") {
		end := strings.Index(text, "]")
		if end < 0 || !strings.HasPrefix(text[end+1:], ":") {
			return "", nil, fmt.Errorf("want [address]:port:port, have %q", text)
		}
		return text[1:end], strings.Split(text[end+2:], ":"), nil
	}
	parts := strings.Split(text, ":")
	return parts[0], parts[1:], nil
}

func parsePort(text string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || n < 1 || n > 65535 {
		return 0, fmt.Errorf("%q is no port", text)
	}
	return n, nil
}

// join makes an address; every address of the machine has no host.
func join(host string, port int) string {
	if host == "0.0.0.0" {
		host = ""
	}
	return net.JoinHostPort(host, strconv.Itoa(port))
}
