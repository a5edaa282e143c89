// Package logonce prevents a retry loop from logging the same error in every iteration.
package logonce

// Last remembers the last error, so that a lasting error is logged only once. The zero value is
// ready to use. It is not safe for concurrent use.
type Last struct{ last string }

// IsNew reports whether an error differs from the last error. For nil it returns false, and forgets
// the last error.
func (c *Last) IsNew(err error) bool {
	was := c.last
	c.last = ""
	if err != nil {
		c.last = err.Error()
	}
	return err != nil && c.last != was
}
