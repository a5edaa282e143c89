package node

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/netcraq/netcraq/api/nodeapi"
)

// KeysOnly makes a list leave out the values. Its items still have versions and leases.
func KeysOnly() Option { return Option{kind: optKeysOnly} }

// PageSize sets the number of names that the server examines for one page, 1 to 256. Without this
// option, ListPage uses the server's default of 100, and List uses the server's maximum.
func PageSize(n int) Option { return Option{kind: optPageSize, number: n} }

// Page is a part of the keys whose names begin with a prefix, in the order of their names. If a key
// could not be read, its Item has an Err.
type Page struct {
	// Items are the keys of this page that have a value. The page may have fewer items than its
	// size, or none, although more pages follow.
	Items []Item
	// Cursor is the cursor of the next page. It is "" on the last page.
	Cursor string
}

// ListPage reads one page of the keys whose names begin with prefix (with "", of all keys in the
// namespace). cursor is the Cursor of the preceding page, or "" for the first page. Options:
// KeysOnly, PageSize.
//
// A key that has a value during the whole listing is in exactly one page. See List.
func (c *Client) ListPage(ctx context.Context, prefix, cursor string, opts ...Option) (Page, error) {
	if err := checkKey(nodeapi.FuncList, prefix); err != nil {
		return Page{}, err
	}
	o := gather(opts)
	answer, err := askFor[nodeapi.ListAnswer](ctx, c, nodeapi.FuncList, nodeapi.ListData{Namespace: o.namespace,
		Prefix: prefix, Cursor: cursor, Limit: o.pageSize, KeysOnly: o.keysOnly}, nil)
	if err != nil {
		return Page{}, c.tooOld(nodeapi.FuncList, err)
	}
	page := Page{Items: make([]Item, 0, len(answer.Items)), Cursor: answer.Cursor}
	for i := range answer.Items {
		item := itemOf(&answer.Items[i])
		if o.keysOnly {
			item.Value = nil
		}
		page.Items = append(page.Items, item)
	}
	return page, nil
}

// List reads all keys whose names begin with prefix (with "", all keys in the namespace), in the
// order of their names, a page at a time. If a page cannot be read, List yields the error and ends.
// If a single key cannot be read, List yields an Item with an Err and continues. Options: KeysOnly,
// PageSize.
//
// List yields a key exactly once if the key has a value during the whole listing. It never yields a
// key twice. Each item is the key's state when its page was read. Pages are read one after the
// other, so List may yield or omit a key that is created or deleted meanwhile. To follow later
// changes, start a Watch with the versions of the items as After.
func (c *Client) List(ctx context.Context, prefix string, opts ...Option) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		opts := append([]Option{PageSize(nodeapi.MaxList)}, opts...)
		for cursor := ""; ; {
			page, err := c.ListPage(ctx, prefix, cursor, opts...)
			if err == nil && page.Cursor != "" && page.Cursor == cursor {
				err = &Error{Code: CodeInternal, Message: "list: the server has answered with the cursor that it was given"}
			}
			if err != nil {
				yield(Item{}, err)
				return
			}
			for _, item := range page.Items {
				if !yield(item, nil) {
					return
				}
			}
			if cursor = page.Cursor; cursor == "" {
				return
			}
		}
	}
}

// tooOld explains err if the reason is that the server does not know the function fn.
func (c *Client) tooOld(fn string, err error) error {
	info := c.Info()
	if !errors.Is(err, &Error{Code: CodeInvalidArgument}) || info.MaxList > 0 {
		return err
	}
	return &Error{Code: CodeInvalidArgument, Do: "update the node's server, or watch the prefix",
		Message: fmt.Sprintf("%s: the node's server (%s) is older than this function: %v", fn, info.Server, err)}
}
