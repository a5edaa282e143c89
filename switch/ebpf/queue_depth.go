package ebpf

import "github.com/netcraq/netcraq/switch/queues"

// watchQueues counts the packets that wait at ports, as long as the running program reads queue
// depths. The caller holds d.swapping, but not d.mu.
func (d *device) watchQueues() {
	d.mu.Lock()
	wanted := !d.closed && d.pipeline != nil && d.pipeline.ReadsQueueDepth()
	d.mu.Unlock()
	switch {
	case !wanted && d.queues != nil:
		d.queues.Stop()
		d.queues = nil
	case wanted && d.queues == nil:
		err := d.netns.Do(func() (err error) {
			d.queues, err = queues.New(d.portNames, d.PortMap.SetDepth)
			return err
		})
		if err != nil {
			d.log.Warn("the program sees no queues: their depths are 0", "err", err)
		}
	}
}

// portNames returns the names of the ports' interfaces.
func (d *device) portNames() map[uint32]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make(map[uint32]string, len(d.ports))
	for n, q := range d.ports {
		out[n] = q.Iface
	}
	return out
}
