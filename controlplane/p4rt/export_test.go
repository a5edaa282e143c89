package p4rt

// Forget has the next read of a register tell all of it.
func (c *Client) Forget() {
	c.told.mu.Lock()
	defer c.told.mu.Unlock()
	clear(c.told.kept)
}
