package p4rt

// Forget makes the next read of a register fetch the whole content.
func (c *Client) Forget() {
	c.told.mu.Lock()
	defer c.told.mu.Unlock()
	clear(c.told.kept)
}
