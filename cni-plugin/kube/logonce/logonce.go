// Package logonce keeps loops that try again from logging the same error each time.
package logonce

// Last remembers what was last wrong, so that what continues is logged once. The zero value is
// ready; it is not safe for concurrent use.
type Last struct{ last string }

// IsNew says whether an error differs from the last time. nil is none, and forgets.
func (c *Last) IsNew(err error) bool {
	was := c.last
	c.last = ""
	if err != nil {
		c.last = err.Error()
	}
	return err != nil && c.last != was
}
