package node

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/netcraq/netcraq/api/nodeapi"
)

// KeysOnly makes a list leave out the values. Items have their versions and leases.
func KeysOnly() Option { return Option{kind: optKeysOnly} }

// PageSize is the number of names that the server examines for one page, 1 to 256. Without it,
// ListPage uses the server's default of 100, and List uses the server's maximum.
func PageSize(n int) Option { return Option{kind: optPageSize, number: n} }

// Page is a part of the keys whose names begin with a prefix, in the order of their names. A key
// that could not be read has an Err.
type Page struct {
	// Items are keys that have a value. There may be fewer than the page's size, or none, although
	// more pages follow.
	Items []Item
	// Cursor is the cursor of the next page. "": this is the last page.
	Cursor string
}

// ListPage reads one page of the keys whose names begin with prefix ("": all of the namespace).
// cursor is the Cursor of the preceding page; "" for the first page. Options: KeysOnly, PageSize.
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

// List reads all keys whose names begin with prefix ("": all of the namespace), in the order of
// their names, a page at a time. It ends at the first error, which it yields. A key that could not
// be read is an Item with an Err, and the list continues. Options: KeysOnly, PageSize.
//
// A key that has a value during the whole listing is yielded exactly once, and no key twice. Each
// item is the key's state when its page was read. Pages are read one after the other, so a key that
// is created or deleted meanwhile may be missing or not. A Watch with the versions of the items as
// After reports what has changed since.
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

// tooOld adds to an error that the server does not know the function, if that is the reason.
func (c *Client) tooOld(fn string, err error) error {
	info := c.Info()
	if !errors.Is(err, &Error{Code: CodeInvalidArgument}) || info.MaxList > 0 {
		return err
	}
	return &Error{Code: CodeInvalidArgument, Do: "update the node's server, or watch the prefix",
		Message: fmt.Sprintf("%s: the node's server (%s) is older than this function: %v", fn, info.Server, err)}
}
