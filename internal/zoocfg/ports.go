package zoocfg

import (
	"fmt"
	"net"
	"strconv"
)

// offset is how a port that a zoo.cfg does not have follows from that of the
// clients, so that several servers of one machine do not meet: above it where that
// is below the ports that systems give to outgoing connections, else below it.
type offset struct{ up, down int }

var (
	grpcOffset = offset{10_000, 10_000} // the port of gRPC
	peerOffset = offset{20_000, 5_000}  // that between servers, of a server that is alone
)

// firstOutgoing is the first port that Linux gives to outgoing connections.
const firstOutgoing = 32768

func (o offset) from(port int) int {
	if port+o.up < firstOutgoing {
		return port + o.up
	}
	return port - o.down
}

func (c *converter) ports() {
	c.clientPort()
	if c.secureClient = c.address("secureClientPort", ""); c.client == "" && c.secureClient == "" {
		c.refuse(c.rule("clientPort"), "neither clientPort nor secureClientPort is set, so there is nowhere to connect to")
		return
	}
	main := c.client
	if main == "" {
		main = c.secureClient
	}
	host, text, _ := net.SplitHostPort(main) // it was joined here
	port, _ := strconv.Atoi(text)
	c.setOwn("listen.grpc", join(host, grpcOffset.from(port)), c.rule(fmt.Sprintf("%d from the client port", grpcOffset.up)))
	if _, ok := c.out.Get("cluster.peers"); !ok {
		c.alone(peerOffset.from(port))
	}
	c.http()
}

// clientPort sets c.client, which the server's own line may have said before.
func (c *converter) clientPort() {
	e := c.entries["clientPort"]
	static := c.address("clientPort", "")
	if c.client != "" && static != "" && c.client != static {
		c.refuse(e, fmt.Sprintf("the server's own line says %s", c.client))
	}
	if c.client == "" {
		c.client = static
	}
}

// address takes a port and its address.
func (c *converter) address(key, other string) string {
	host, hasHost := c.take(key + "Address")
	e, ok := c.take(key)
	if !ok || e.Value == "0" || e.Value == "-1" {
		if hasHost && other == "" && c.client == "" {
			c.refuse(host, key+" is not set")
		}
		return other
	}
	port, err := parsePort(e.Value)
	if err != nil {
		c.refuse(e, err.Error())
		return other
	}
	return join(host.Value, port)
}

// alone makes the list of servers of one that is alone. Nobody else is to reach its
// port for servers.
func (c *converter) alone(peer int) {
	rule := c.rule("no server lines: one server by itself")
	c.set("cluster.bootstrap", "auto", rule)
	c.set("cluster.peers", namePrefix+"1="+join("127.0.0.1", peer), rule)
	c.setOwn("node.name", namePrefix+"1", rule)
}

// http is one port for health and metrics. Where a file has two, that which
// programs read wins.
func (c *converter) http() {
	enabled, e := c.flag("admin.enableServer", true)
	host, _ := c.take("admin.serverAddress")
	port, given := c.take("admin.serverPort")
	metrics := c.metrics()
	switch {
	case metrics != "" && given && enabled:
		c.note(port, "health and metrics have one port, that of the metrics provider")
	case metrics != "":
	case given && enabled && port.Value != "0":
		if n, err := parsePort(port.Value); err != nil {
			c.refuse(port, err.Error())
		} else {
			c.setOwn("listen.http", join(host.Value, n), port)
		}
		return
	default:
		if given {
			c.note(port, "there is no port for health and metrics")
		}
		if e.Line > 0 && enabled {
			c.note(e, "there is no port for health and metrics unless admin.serverPort says which")
		}
		c.setOwn("listen.http", "", c.rule("neither admin.serverPort nor a metrics provider"))
	}
	if given {
		c.note(port, "/commands is not there; see /readyz and /metrics")
	}
}

// metrics takes the metrics provider and returns where it is listened to.
func (c *converter) metrics() string {
	class, ok := c.take("metricsProvider.className")
	port, hasPort := c.take("metricsProvider.httpPort")
	host, _ := c.take("metricsProvider.httpHost")
	if !ok || class.Value != "org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider" {
		if ok {
			c.note(class, "metrics are those of Prometheus, at /metrics of listen.http")
		}
		if hasPort {
			c.note(port, "there is no metrics provider that it belongs to")
		}
		return ""
	}
	text := "7000" // as the provider has it
	if hasPort {
		text = port.Value
	}
	n, err := parsePort(text)
	if err != nil {
		c.refuse(port, err.Error())
		return ""
	}
	address := join(host.Value, n)
	from := class
	if hasPort {
		from = port
	}
	c.setOwn("listen.http", address, from)
	return address
}
