package main

import (
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coordd/coord/client"
)

// errStranger is what came back from a port where something else than coordd's
// service for clients listens.
var errStranger = errors.New("answers, but not as a coordd client port")

// strangerPatience bounds the question what listens at an endpoint.
const strangerPatience = 300 * time.Millisecond

// unmask looks at the endpoints of err that have answered in a way that the
// client could make nothing of: gRPC does not say whether a server is busy or
// speaks another protocol. TLS tells that by itself.
func (e *env) unmask(err error) error {
	var ce *client.Error
	if !errors.Is(err, client.ErrUnavailable) || !errors.As(err, &ce) {
		return err
	}
	t, resolveErr := e.resolve()
	if resolveErr != nil || t.secured() {
		return err
	}
	var wg sync.WaitGroup
	for i := range ce.Tried {
		if a := &ce.Tried[i]; unclear(a.Err) {
			wg.Go(func() {
				if isStranger(a.Endpoint) {
					a.Err = errStranger
				}
			})
		}
	}
	wg.Wait()
	return err
}

// secured says whether connections to the target are made with TLS.
func (t *target) secured() bool {
	byURL := func(endpoint string) bool { return strings.HasPrefix(endpoint, "coords:") }
	return t.CACert != "" || t.Cert != "" || t.Key != "" || t.ServerName != "" || slices.ContainsFunc(t.Endpoints, byURL)
}

// unclear says that err is neither of the network nor a server's own word.
func unclear(err error) bool {
	return err != nil && !errors.As(err, new(*net.OpError)) && !errors.As(err, new(*client.Error)) && status.Code(err) == codes.Unknown
}

// http2Greeting is what a client of HTTP/2 says first: the preface and empty
// settings.
const http2Greeting = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// isStranger says whether something listens at endpoint that answers, and not
// with the settings that begin HTTP/2 or an alert of TLS.
func isStranger(endpoint string) bool {
	conn, err := net.DialTimeout("tcp", endpoint, strangerPatience)
	if err != nil {
		return false
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(strangerPatience)); err != nil {
		return false
	}
	_, _ = io.WriteString(conn, http2Greeting) // who speaks first may have closed already, and can be read
	const settings, alert = 4, 0x15
	var frame [9]byte // the head of a frame; its fourth byte is the type
	n, _ := io.ReadFull(conn, frame[:])
	return n > 0 && frame[0] != alert && (n < len(frame) || frame[3] != settings)
}

// metStranger says whether one of the endpoints that err names is no client port.
func metStranger(err error) bool {
	var ce *client.Error
	return errors.As(err, &ce) && slices.ContainsFunc(ce.Tried, func(a client.Attempt) bool {
		return errors.Is(a.Err, errStranger)
	})
}
