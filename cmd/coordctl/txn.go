package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/coordd/coord/client"
)

// maxTxnBytes bounds what is read: no cluster takes a larger transaction.
const maxTxnBytes = 64 << 20

func newTxnCmd(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "txn FILE|-",
		Short: "Do several operations in one transaction, or none",
		Long: `Do several operations in one transaction: all of them, or none. FILE (- for
standard input) holds a JSON list of operations, done in this order:

  [
    {"op": "check",  "path": "/app/lock", "czxid": "0x2a00001f3c"},
    {"op": "set",    "path": "/app/config", "data": "workers: 8", "version": 7},
    {"op": "create", "path": "/app/log/e-", "data": "aGVsbG8=", "dataEncoding": "base64", "sequential": true},
    {"op": "delete", "path": "/app/old"}
  ]

Fields:
  op            create, set, delete, check or setACL
  path          of the znode
  data          create, set: text; left out or null: the znode holds null
  dataEncoding  utf8 (default) or base64
  version       set, delete, check: only at this version; setACL: at this aversion
  czxid         set, delete, check: only the very znode made by this transaction
  owner         set, delete, check: only if it belongs to this session
  kind          create: persistent (default), ephemeral, container or ttl
  ttl           create, kind ttl: as in "30s"
  sequential    create: true puts a rising number behind the name
  acl           create, setACL: a list of entries, as in coordctl acl set --help

The results are printed in the same order. If an operation fails nothing is done,
and the message names the operation by its place, from 0.`,
		Example: `  coordctl txn change.json
  echo '[{"op":"check","path":"/a","version":3},{"op":"delete","path":"/b"}]' | coordctl txn -`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ops, ephemeral, err := e.readTxn(args[0])
			if err != nil {
				return err
			}
			if ephemeral {
				return e.txnInSession(cmd.Context(), ops)
			}
			return e.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				return e.txn(repeatable(ctx), c, ops)
			})
		},
	}
}

func (e *env) readTxn(file string) (ops []txnOp, ephemeral bool, err error) {
	in := e.stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, false, usagef("txn: %w", err)
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxTxnBytes+1))
	switch {
	case err != nil:
		return nil, false, fmt.Errorf("txn: read %s: %w", file, err)
	case len(text) > maxTxnBytes:
		return nil, false, usagef("txn: %s is larger than %s", file, size(maxTxnBytes))
	}
	ops, err = parseTxn(text)
	for i := range ops {
		ephemeral = ephemeral || ops[i].Kind == "ephemeral"
	}
	return ops, ephemeral, err
}

// txnInSession is for transactions with ephemeral znodes: their session is left
// to expire.
func (e *env) txnInSession(ctx context.Context, ops []txnOp) error {
	c, err := e.dialWith(ctx)
	if err != nil {
		return err
	}
	p := e.pace(ctx)
	defer p.stop()
	if err := e.diagnose(ctx, p.result(e.txn(p.ctx, c, ops))); err != nil {
		return errors.Join(err, c.Close())
	}
	e.note("session %s is left to expire: its ephemeral znodes go within about %s", c.Session().ID(), c.Session().Timeout())
	return nil
}

// txnResult is what became of one operation.
type txnResult struct {
	Op   string    `json:"op"`
	Path string    `json:"path"`
	Stat *statItem `json:"stat,omitempty"` // after create, set and setACL
}

func (e *env) txn(ctx context.Context, c *client.Client, ops []txnOp) error {
	var list []client.Op
	var place []int // in the file, of each operation of list
	for i := range ops {
		list = append(list, ops[i].ops...)
		for range ops[i].ops {
			place = append(place, i)
		}
	}
	results, err := c.Txn(ctx, list...)
	if err != nil {
		return placed(err, place)
	}
	l := e.newLister("TxnResult", []string{"#", "OP", "PATH", "VERSION", "CZXID"}, []string{"MZXID"})
	for i, r := range results {
		if condition(place, i) {
			continue
		}
		item := txnResult{Op: ops[place[i]].Op, Path: r.Path}
		version, czxid, mzxid := "-", "-", "-"
		if r.Stat.Czxid != 0 {
			item.Stat = newStatItem(&r.Stat)
			version, czxid, mzxid = fmt.Sprint(r.Stat.Version), item.Stat.Czxid, item.Stat.Mzxid
		}
		if err := l.add(item, fmt.Sprint(place[i]), item.Op, item.Path, version, czxid, mzxid); err != nil {
			return err
		}
	}
	return l.close()
}

// placed makes an error name the operation by its place in the file, and tells a
// failed condition on the very node from one on the version.
func placed(err error, place []int) error {
	var ce *client.Error
	if !errors.As(err, &ce) || ce.Index < 0 || ce.Index >= len(place) {
		return err
	}
	i := ce.Index
	ce.Index = place[i]
	if condition(place, i) && errors.Is(err, client.ErrBadVersion) {
		ce.Err = errOtherNode
	}
	return err
}

// condition says whether the i-th operation was put in front of the next one.
func condition(place []int, i int) bool { return i+1 < len(place) && place[i+1] == place[i] }
