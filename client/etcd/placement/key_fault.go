package placement

// Fault is why a key cannot stay placed, found by placement or by a gateway when it reads the key's
// slot. A gateway then requests the removal of the key from the network.
type Fault string

// The faults.
const (
	NoFault       Fault = ""
	ValueTooLarge Fault = "value-too-large" // a gateway could not put the value into the slot
	// etcd has a newer value than the slot: a writer bypasses the gateways
	Bypassed        Fault = "bypassed"
	SlotLost        Fault = "slot-lost"        // the slot is gone, or belongs to another placement
	SlotUnreachable Fault = "slot-unreachable" // a gateway cannot write the key, because its slot does not answer
	Forged          Fault = "forged"           // the slot has a cell that no gateway has written
)

// ParseFault parses a gateway's name for a fault. Gateways of an earlier version use "mute" for
// SlotUnreachable.
func ParseFault(text string) Fault {
	if text == "mute" {
		return SlotUnreachable
	}
	return Fault(text)
}
