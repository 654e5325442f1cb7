package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/session"
	"github.com/coordd/coord/zxid"
)

// txnOp is one operation as a file says it.
type txnOp struct {
	Op         string       `json:"op"`
	Path       string       `json:"path"`
	Data       *string      `json:"data"`
	Encoding   string       `json:"dataEncoding"`
	Version    *txnNumber   `json:"version"`
	Czxid      string       `json:"czxid"`
	Owner      string       `json:"owner"`
	Kind       string       `json:"kind"`
	TTL        string       `json:"ttl"`
	Sequential bool         `json:"sequential"`
	ACL        []string     `json:"acl"`
	ops        []client.Op  // as the client takes it: conditions, then the operation
	acl        []client.ACL // parsed
}

// txnNumber is a number, or one in a string: tools that hold numbers as floating
// point would round a large one.
type txnNumber int64

func (n *txnNumber) UnmarshalJSON(b []byte) error {
	v, err := strconv.ParseInt(strings.Trim(string(b), `"`), 10, 64)
	if err != nil {
		return fmt.Errorf("version %s is no whole number", b)
	}
	*n = txnNumber(v)
	return nil
}

// parseTxn reads a list of operations. Unknown fields are refused: a misspelt
// condition must not pass as none.
func parseTxn(text []byte) ([]txnOp, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	var ops []txnOp
	if err := dec.Decode(&ops); err != nil {
		return nil, usagef("txn: %s%s", plainJSON(err), lineOf(text, err))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, usagef("txn: there is something behind the list of operations")
	}
	if len(ops) == 0 {
		return nil, usagef("txn: the list of operations is empty\nhint: coordctl txn --help shows one")
	}
	for i := range ops {
		if err := ops[i].parse(); err != nil {
			return nil, usagef("txn: operation %d: %w", i, err)
		}
	}
	return ops, nil
}

// plainJSON says what is wrong with a file in its own words.
func plainJSON(err error) string {
	const want = `want a list of operations: [{"op": ..., "path": ...}, ...]`
	var kind *json.UnmarshalTypeError
	switch {
	case errors.Is(err, io.EOF):
		return "there is nothing; " + want
	case !errors.As(err, &kind):
		return strings.TrimPrefix(err.Error(), "json: ")
	case kind.Field == "":
		return want + ", have a JSON " + kind.Value
	default:
		return fmt.Sprintf("field %q cannot be a JSON %s", kind.Field, kind.Value)
	}
}

// lineOf says where in the text the parser stopped, if it has said so.
func lineOf(text []byte, err error) string {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	offset := int64(0)
	switch {
	case errors.As(err, &syntax):
		offset = syntax.Offset
	case errors.As(err, &kind):
		offset = kind.Offset
	default:
		return ""
	}
	return fmt.Sprintf(" (line %d)", 1+bytes.Count(text[:min(int(offset), len(text))], []byte("\n")))
}

func (t *txnOp) parse() (err error) {
	if err := t.foreignFields(); err != nil {
		return err
	}
	if t.acl, err = parseACL(t.ACL); err != nil {
		return err
	}
	if err := t.parseConditions(); err != nil {
		return err
	}
	op, err := t.operation()
	t.ops = append(t.ops, op)
	return err
}

func (t *txnOp) operation() (client.Op, error) {
	switch t.Op {
	case "create":
		return t.create()
	case "set":
		data, err := t.data()
		return client.OpSet(t.Path, data, t.version()), err
	case "delete":
		return client.OpDelete(t.Path, t.version()), nil
	case "check":
		return client.OpCheck(t.Path, t.version()), nil
	case "setACL":
		if len(t.acl) == 0 {
			return client.Op{}, errors.New("setACL needs acl")
		}
		return client.OpSetACL(t.Path, t.acl, t.version()), nil
	default:
		return client.Op{}, fmt.Errorf("op %q is none of create, set, delete, check, setACL", t.Op)
	}
}

// foreignFields refuses fields that would have no effect.
func (t *txnOp) foreignFields() error {
	writes := t.Op == "create" || t.Op == "set"
	asks := t.Op == "set" || t.Op == "delete" || t.Op == "check"
	for _, f := range []struct {
		name string
		set  bool
		ok   bool
	}{
		{"data", t.Data != nil, writes},
		{"dataEncoding", t.Encoding != "", writes},
		{"version", t.Version != nil, t.Op != "create"},
		{"czxid", t.Czxid != "", asks},
		{"owner", t.Owner != "", asks},
		{"kind", t.Kind != "", t.Op == "create"},
		{"ttl", t.TTL != "", t.Op == "create" && t.Kind == "ttl"},
		{"sequential", t.Sequential, t.Op == "create"},
		{"acl", len(t.ACL) > 0, t.Op == "create" || t.Op == "setACL"},
	} {
		if f.set && !f.ok {
			return fmt.Errorf("%s takes no %s", t.Op, f.name)
		}
	}
	return nil
}

func (t *txnOp) version() client.Version {
	if t.Version == nil {
		return client.AnyVersion
	}
	return client.Version(*t.Version)
}

func (t *txnOp) data() ([]byte, error) {
	switch {
	case t.Encoding != "" && t.Encoding != "utf8" && t.Encoding != "base64":
		return nil, fmt.Errorf("dataEncoding %q is none of utf8, base64", t.Encoding)
	case t.Data == nil:
		return nil, nil
	case t.Encoding == "base64":
		data, err := base64.StdEncoding.DecodeString(*t.Data)
		if err != nil {
			return nil, fmt.Errorf("data: %w", err)
		}
		return data, nil
	default:
		return []byte(*t.Data), nil
	}
}

// parseConditions puts a check of the very node in front of the operation.
func (t *txnOp) parseConditions() error {
	var z zxid.ID
	var owner session.ID
	var err error
	if t.Czxid != "" {
		if z, err = zxid.Parse(t.Czxid); err != nil {
			return fmt.Errorf("czxid: %w", err)
		}
	}
	if t.Owner != "" {
		if owner, err = session.ParseID(t.Owner); err != nil {
			return fmt.Errorf("owner: %w", err)
		}
	}
	if z != 0 || owner != 0 {
		t.ops = append(t.ops, client.OpCheckNode(t.Path, z, owner))
	}
	return nil
}

func (t *txnOp) create() (client.Op, error) {
	data, err := t.data()
	if err != nil {
		return client.Op{}, err
	}
	var opts []client.CreateOption
	switch t.Kind {
	case "", "persistent":
	case "ephemeral":
		opts = append(opts, client.WithEphemeral())
	case "container":
		opts = append(opts, client.WithContainer())
	case "ttl":
		ttl, err := time.ParseDuration(t.TTL)
		if err != nil || ttl <= 0 || ttl%time.Millisecond != 0 {
			return client.Op{}, fmt.Errorf("ttl %q is no time above zero, as in 30s", t.TTL)
		}
		opts = append(opts, client.WithTTL(ttl))
	default:
		return client.Op{}, fmt.Errorf("kind %q is none of persistent, ephemeral, container, ttl", t.Kind)
	}
	if t.Sequential {
		opts = append(opts, client.WithSequential())
	}
	if len(t.acl) > 0 {
		opts = append(opts, client.WithACL(t.acl...))
	}
	return client.OpCreate(t.Path, data, opts...), nil
}
