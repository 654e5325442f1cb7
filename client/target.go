package client

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"
)

// DefaultPort is the port of endpoints that name none.
const DefaultPort = "7420"

// maxEndpoints bounds a target; a longer list is a mistake.
const maxEndpoints = 64

// parseTarget reads "host1:7420,host2" or a URL "coord://host1,host2/chroot?..."
// and puts what the URL says into o. Options given to Dial win over the URL, so
// it must be applied before them.
func parseTarget(target string) (endpoints []string, fromURL []Option, err error) {
	if strings.Contains(target, "://") {
		return parseURL(target)
	}
	endpoints, err = parseEndpoints(target)
	return endpoints, nil, err
}

func parseURL(target string) ([]string, []Option, error) {
	scheme, rest, _ := strings.Cut(target, "://")
	var opts []Option
	switch scheme {
	case "coord":
	case "coords":
		opts = append(opts, func(o *options) { o.serverTLS = true })
	default:
		return nil, nil, fmt.Errorf("target %q: scheme must be coord or coords", target)
	}
	// net/url does not take a list of hosts, so the parts are cut by hand.
	rest, query, _ := strings.Cut(rest, "?")
	hosts, path, hasPath := strings.Cut(rest, "/")
	if hasPath && path != "" {
		chroot, err := url.PathUnescape("/" + strings.TrimSuffix(path, "/"))
		if err != nil {
			return nil, nil, fmt.Errorf("target %q: %w", target, err)
		}
		opts = append(opts, WithChroot(chroot))
	}
	fromQuery, err := parseQuery(query)
	if err != nil {
		return nil, nil, fmt.Errorf("target %q: %w", target, err)
	}
	endpoints, err := parseEndpoints(hosts)
	return endpoints, append(opts, fromQuery...), err
}

func parseQuery(query string) ([]Option, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, err
	}
	var opts []Option
	for key, vs := range values {
		v := vs[len(vs)-1]
		switch key {
		case "session":
			d, err := time.ParseDuration(v)
			if err != nil {
				return nil, fmt.Errorf("session: %w", err)
			}
			opts = append(opts, WithSessionTimeout(d))
		case "name":
			opts = append(opts, WithSessionName(v))
		case "identity":
			opts = append(opts, WithIdentity(v))
		default:
			return nil, fmt.Errorf("unknown parameter %q; known are session, name and identity", key)
		}
	}
	return opts, nil
}

func parseEndpoints(list string) ([]string, error) {
	var out []string
	seen := map[string]bool{}
	for e := range strings.SplitSeq(list, ",") {
		e = strings.TrimSpace(e)
		if e == "" {
			continue
		}
		addr, err := endpoint(e)
		if err != nil {
			return nil, err
		}
		if !seen[addr] {
			seen[addr] = true
			out = append(out, addr)
		}
	}
	switch {
	case len(out) == 0:
		return nil, errors.New("no endpoint: want host:port,host:port")
	case len(out) > maxEndpoints:
		return nil, fmt.Errorf("%d endpoints; at most %d make sense", len(out), maxEndpoints)
	}
	return out, nil
}

func endpoint(e string) (string, error) {
	host, port, err := net.SplitHostPort(e)
	if err != nil {
		host, port = strings.TrimSuffix(strings.TrimPrefix(e, "["), "]"), DefaultPort
		if strings.Contains(host, ":") && net.ParseIP(host) == nil {
			return "", fmt.Errorf("endpoint %q: %w", e, err)
		}
	}
	if host == "" || port == "" || strings.ContainsAny(host, "/@ ") {
		return "", fmt.Errorf("endpoint %q: want host:port", e)
	}
	return net.JoinHostPort(host, port), nil
}
