package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/netcraq/netcraq/client/node"
	"github.com/netcraq/netcraq/cmd/internal/operate"
)

// transaction has the flags that describe a transaction.
type transaction struct {
	ifVersion, ifValue, ifAbsent, put, delete []string
}

func (c *cli) transactCommand() *cobra.Command {
	var t transaction
	cmd := &cobra.Command{
		Use: "transact", Short: "Compare and write several durable keys together", Args: cobra.NoArgs,
		Long: `Write several keys at one moment, if all conditions hold. Otherwise write nothing, print the conditions that do not hold, and
exit with 4. Print the version and the name of each written key, first those of --put and then those of --delete. Each flag
may be passed several times. There are at most 64 conditions and writes together. Without a write, only check the conditions.

All keys have to be durable. New keys of a namespace are if its policy says so; those of netcraq dev are in the namespace
durable. VALUE is text, @FILE, - for standard input, or hex:00ff. Write text: before text that begins like one of these. KEY
ends before the first =.`,
		Example: `  netcraq transact --namespace durable --if-value a=100 --put a=70 --put b=30
  netcraq transact --if-version job=16384.7 --delete job --put result=@r.json
  netcraq transact --if-absent owner --put owner=me --put since=today`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			x, conditions, err := c.parseTransaction(&t)
			if err != nil {
				return err
			}
			return c.call(cmd, func(ctx context.Context, cl *node.Client) error {
				got, err := cl.Transact(ctx, x)
				if err != nil {
					return err
				}
				return c.showTransacted(&t, conditions, got)
			})
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&t.ifVersion, "if-version", nil, "write only if `KEY=VERSION` is the key's version (0: never written)")
	f.StringArrayVar(&t.ifValue, "if-value", nil, "write only if `KEY=VALUE` is the key's value")
	f.StringArrayVar(&t.ifAbsent, "if-absent", nil, "write only if `KEY` has no value")
	f.StringArrayVar(&t.put, "put", nil, "write a value: `KEY=VALUE`")
	f.StringArrayVar(&t.delete, "delete", nil, "delete `KEY`")
	return cmd
}

// parseTransaction makes a transaction from flags. The returned conditions describe the expected
// state of each key.
func (c *cli) parseTransaction(t *transaction) (x node.Transaction, conditions map[string]string, err error) {
	conditions = map[string]string{}
	pairs := func(flag string, all []string, use func(key, value string) error) {
		for _, s := range all {
			key, value, ok := strings.Cut(s, "=")
			switch {
			case err != nil:
			case !ok:
				err = operate.UsageError(fmt.Errorf("%s %s: pass KEY=VALUE", flag, s))
			default:
				err = use(key, value)
			}
		}
	}
	pairs("--if-version", t.ifVersion, func(key, s string) error {
		v, err := version("--if-version "+key, s)
		x.Compare, conditions[key] = append(x.Compare, node.HasVersion(key, v)), "not "+string(v)
		return err
	})
	pairs("--if-value", t.ifValue, func(key, s string) error {
		value, err := c.value(s)
		x.Compare, conditions[key] = append(x.Compare, node.HasValue(key, value)), "and another value"
		return err
	})
	for _, key := range t.ifAbsent {
		x.Compare, conditions[key] = append(x.Compare, node.IsAbsent(key)), "and a value"
	}
	pairs("--put", t.put, func(key, s string) error {
		value, err := c.value(s)
		x.Write = append(x.Write, node.PutKey(key, value))
		return err
	})
	for _, key := range t.delete {
		x.Write = append(x.Write, node.DeleteKey(key))
	}
	if err == nil && len(x.Compare)+len(x.Write) == 0 {
		err = operate.UsageError(errors.New("pass what to write: --put or --delete; or conditions to check, such as --if-version"))
	}
	return x, conditions, err
}

func (c *cli) showTransacted(t *transaction, conditions map[string]string, got node.Transacted) error {
	type written struct {
		Key     string `json:"key"`
		Version string `json:"version"`
	}
	out := struct {
		Done    bool      `json:"done"`
		Written []written `json:"written,omitempty"`
		Failed  []shown   `json:"failed,omitempty"`
	}{Done: got.Done}
	var lines, reasons []string
	for i, v := range got.Versions {
		key := ""
		if i < len(t.put) {
			key, _, _ = strings.Cut(t.put[i], "=")
		} else {
			key = t.delete[i-len(t.put)]
		}
		out.Written = append(out.Written, written{key, string(v)})
		lines = append(lines, string(v)+"\t"+key)
	}
	for _, i := range got.Failed {
		s := shownOf(i)
		if i.Value == nil {
			s.Value = nil
		}
		out.Failed = append(out.Failed, s)
		reason := fmt.Sprintf("%s has version %s %s", i.Key, i.Version, conditions[i.Key])
		if !i.Found {
			reason = fmt.Sprintf("%s has no value, and version %s", i.Key, i.Version)
		}
		reasons = append(reasons, reason)
	}
	switch {
	case c.json():
		if err := c.show(out, ""); err != nil || got.Done {
			return err
		}
		return silent{refused{}}
	case !got.Done:
		return refused{fmt.Errorf("%s; nothing was written", strings.Join(reasons, "; "))}
	case len(lines) == 0:
		return c.show(nil, "all conditions hold")
	}
	return c.show(nil, strings.Join(lines, "\n"))
}
