// Package logonce prevents retry loops from logging the same error each time.
package logonce

// Last remembers the last error, so that a lasting one is logged once. The zero value is ready; it
// is not safe for concurrent use.
type Last struct{ last string }

// IsNew reports whether an error differs from the last one. nil returns false, and forgets the last
// one.
func (c *Last) IsNew(err error) bool {
	was := c.last
	c.last = ""
	if err != nil {
		c.last = err.Error()
	}
	return err != nil && c.last != was
}
